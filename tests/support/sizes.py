"""How large a message of a client is, without its words."""

from flwr.app import Message

from fedcohort.flower import messages
from fedcohort.flower.messages import Letter
from fedcohort.runs.client_messages import NUMBER


def size_of(reply: Message) -> int:
    """The numbers among the facts and all tensors; names are words."""
    letter = messages.read(reply.content)
    if "name" in letter.facts:
        return NUMBER * 5 + letter.bytes
    return NUMBER * (len(letter.facts.keys() - {"trained"}) + len(trained_in(letter))) + letter.bytes


def trained_in(letter: Letter) -> dict:
    """What an evaluation tells of the training that came with it."""
    return letter.facts.get("trained", {})
