"""Messages: what the server and a client write to one another, and how Flower carries it.

A message is a few facts that JSON can hold, and named memories: dicts of tensors. Whatever a message does not
have is never sent. Whoever reads one trusts nothing of it: what :func:`write` could not have written is
refused before anything is made of it.
"""

import json
import math
from collections.abc import Iterable
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from numpy.lib import format as npy
from torch import Tensor

from fedcohort.core.records import Memory
from fedcohort.models.flat import Weights

# The kinds of messages: Flower's category, and what is asked.
PROFILE = "query.profile"  # who are you, and what may be known of your data
LOSS = "query.loss"  # the loss of a model on your training data
SURVEY = "query.survey"  # the grouping's question about all groups' models
TRAIN = "train"  # one round of local training
UPDATE = "query.update"  # the update of this round, after it was judged
CROSS = "query.cross"  # the accuracy of others' models on your validation data
MEMORY = "query.memory"  # what you remember
SCORE = "evaluate"  # how the model that serves you does on your test data
KINDS = {  # what leaves a client in answer to each, as fedcohort.core.schema has it
    PROFILE: "profile",
    LOSS: "poll",
    SURVEY: "survey",
    TRAIN: "training",
    UPDATE: "update",
    CROSS: "cross",
    MEMORY: "memory",
    SCORE: "evaluation",
}

# Why a client sends nothing else. Never the text of an exception: it may quote data.
FORGOT = "forgot"  # it has no such memory any more
NO_ENCODERS = "no encoders"  # the merged models have not reached it
NOT_FINITE = "not finite"  # its training gave something that is not a number
NOTHING = "nothing"  # it has nothing to do this with: no sample, no update
REFUSED = "refused"  # its own policy forbids it; its own log says what
FAILED = "failed"  # anything else; its own log says what
CODES = (FORGOT, NO_ENCODERS, NOT_FINITE, NOTHING, REFUSED, FAILED)
UNREADABLE = "unreadable"  # what the server calls an answer that nobody could have meant

# The largest messages that are read.
FACTS = 1 << 22  # characters of facts
DEEPEST = 16  # lists within lists
RECORDS = 10_000  # memories
SIDES = 8  # dimensions of a tensor
KINDS_OF_NUMBERS = {name: np.dtype(name) for name in ("float32", "float64", "int32", "int64")}


class NonsenseError(ValueError):
    """What no honest sender writes. The words are ours: nothing that a sender made up is printed."""


class Payload(NamedTuple):
    """One message in either direction."""

    facts: dict[str, Any]
    tensors: dict[str, Memory]

    def and_also(self, more: "Payload") -> "Payload":
        """Both in one message."""
        return Payload({**self.facts, **more.facts}, {**self.tensors, **more.tensors})


def write(payload: Payload, written: dict[int, ArrayRecord] | None = None) -> RecordDict:
    """As Flower sends it; ``written`` spares the second writing of a memory that many messages share."""
    written = {} if written is None else written
    content = RecordDict({"facts": ConfigRecord({"json": json.dumps(payload.facts)})})
    for name, memory in payload.tensors.items():
        if id(memory) not in written:
            arrays = {key: Array(value.detach().contiguous().numpy()) for key, value in memory.items()}
            written[id(memory)] = ArrayRecord(arrays)
        content[name] = written[id(memory)]
    return content


def read(content: RecordDict) -> Payload:
    """The inverse; NonsenseError for anything that :func:`write` did not make."""
    if len(content) > RECORDS:
        raise NonsenseError("it holds too much")
    told = content.get("facts")
    text = told.get("json") if isinstance(told, ConfigRecord) else None
    if not isinstance(text, str) or len(text) > FACTS:
        raise NonsenseError("it holds no facts")
    records = ((name, record) for name, record in content.items() if isinstance(record, ArrayRecord))
    tensors = {name: {key: _tensor(array) for key, array in record.items()} for name, record in records}
    return Payload(_facts(text), tensors)


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        raise NonsenseError("its facts are no JSON") from None
    level: list[Any] = [facts]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            break
    if level or not isinstance(facts, dict):
        raise NonsenseError("its facts are no table")
    return facts


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _tensor(array: Array) -> Tensor:
    """Nothing is allocated before the bytes are known to be what they say: plain numbers, and as many."""
    kind, shape, data = KINDS_OF_NUMBERS.get(array.dtype), tuple(array.shape), array.data
    if kind is None or len(shape) > SIDES or min(shape, default=0) < 0:
        raise NonsenseError("a tensor is of a kind that nobody sends")
    start = _header(data, kind, shape)
    needed = math.prod(max(1, side) for side in shape) * kind.itemsize  # empty ones have no huge sides
    if start is None or needed != max(kind.itemsize, len(data) - start):
        raise NonsenseError("a tensor is not as large as it says")
    return torch.from_numpy(np.frombuffer(data, kind, math.prod(shape), start).reshape(shape).copy())


def _header(data: bytes, kind: np.dtype[Any], shape: tuple[int, ...]) -> int | None:
    """Where the numbers begin, if these are the bytes of such an array."""
    file = BytesIO(data[: npy.MAGIC_LEN + 2 + 10_000])
    try:
        if npy.read_magic(file) != (1, 0):
            return None
        found = npy.read_array_header_1_0(file)
    except (ValueError, RecursionError, MemoryError):
        return None
    return file.tell() if found == (shape, False, kind) else None


def read_models(payload: Payload, kind: str = "model") -> list[Weights]:
    """The inverse of :func:`fedcohort.core.schema.model_records`."""
    count = sum(name.startswith(f"{kind}/") for name in payload.tensors)
    return [Weights(**payload.tensors[f"{kind}/{number}"]) for number in range(count)]
