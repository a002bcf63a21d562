"""How large a message of a client is, without its words."""

from typing import Any

from flwr.app import Message

from fedcohort.flower import messages
from fedcohort.flower.messages import Payload

NUMBER = 8  # bytes of a number that is sent by itself


def size_of(reply: Message) -> int:
    """The numbers among the facts and all tensors; names are words."""
    return size_of_payload(messages.read(reply.content))


def size_of_payload(payload: Payload) -> int:
    tensors = [tensor for record in payload.tensors.values() for tensor in record.values()]
    return NUMBER * numbers(payload.facts) + sum(each.numel() * each.element_size() for each in tensors)


def numbers(facts: Any) -> int:
    """How many there are, however deep."""
    if isinstance(facts, dict | list):
        return sum(map(numbers, facts.values() if isinstance(facts, dict) else facts))
    return int(isinstance(facts, int | float) and not isinstance(facts, bool))


def trained_in(payload: Payload) -> dict:
    """What an evaluation tells of the training that came with it."""
    return payload.facts.get("trained", {})
