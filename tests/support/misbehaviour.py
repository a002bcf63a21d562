"""Clients of a Flower federation that fail or lie, and what a run says of them."""

from pathlib import Path

import torch
from flwr.app import ConfigRecord, Message, RecordDict

from fedcohort.core.records import Memory
from fedcohort.flower import messages
from fedcohort.flower.messages import Payload
from fedcohort.flower.transport import CRASHED, OFFLINE
from fedcohort.runs.run import Result
from support.inprocess import FIRST, failure

BAD = FIRST + 2  # the node that misbehaves


def rewritten(reply: Message, **changes: Memory | None) -> Message:
    """The reply with other tensors, or other facts where the name is ``facts``."""
    payload = messages.read(reply.content)
    facts = {**payload.facts, **changes.pop("facts", {})}
    tensors = {**payload.tensors, **changes}
    reply.content = messages.write(Payload(facts, tensors))
    return reply


def junk(reply: Message) -> Message:
    reply.content = RecordDict({"nonsense": ConfigRecord({"a": 1})})
    return reply


def nan_update(reply: Message) -> Message:
    update = messages.read(reply.content).tensors["update"]
    return rewritten(reply, update={**update, "delta": torch.full_like(update["delta"], torch.nan)})


def short_update(reply: Message) -> Message:
    update = messages.read(reply.content).tensors["update"]
    return rewritten(reply, update={**update, "delta": update["delta"][:3]})


BROKEN = {
    "crashed": lambda reply: failure(reply, CRASHED),
    "offline": lambda reply: failure(reply, OFFLINE),
    "nothing": lambda reply: None,
    "junk": junk,
    "nan": nan_update,
    "short": short_update,
    "other names": lambda reply: rewritten(reply, update={"gradient": torch.zeros(3)}),
    "huge size": lambda reply: rewritten(reply, facts={"size": 10**9}),
    "no size": lambda reply: rewritten(reply, facts={"size": None}),
    "many steps": lambda reply: rewritten(reply, facts={"steps": 10**6}),
    "odd trace": lambda reply: rewritten(reply, trace={"trace": torch.zeros(2, 2)}),
    "a code": lambda reply: rewritten(reply, facts={"code": messages.FAILED}),
    "an invented code": lambda reply: rewritten(reply, facts={"code": "patient 17 is ill"}),
}


def values(result: Result, metric: str) -> list[float]:
    return [row.value for row in result.rows if row.metric == metric and not row.client]


def log_of(out: Path) -> str:
    return next(out.glob("experiment-*/*/flower.log")).read_text()
