"""How large a message of a client is, without its words."""

from flwr.app import Message

from fedcohort.flower import messages
from fedcohort.flower.messages import Payload
from fedcohort.runs.client_messages import NUMBER


def size_of(reply: Message) -> int:
    """The numbers among the facts and all tensors; names are words."""
    payload = messages.read(reply.content)
    if "name" in payload.facts:
        return NUMBER * 5 + payload.bytes
    return NUMBER * (len(payload.facts.keys() - {"trained"}) + len(trained_in(payload))) + payload.bytes


def trained_in(payload: Payload) -> dict:
    """What an evaluation tells of the training that came with it."""
    return payload.facts.get("trained", {})
