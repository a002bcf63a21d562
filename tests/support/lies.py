"""Arbitrary answers of one client, and what must be true of a run whatever they are.

A test tries a few of them; a longer search calls :func:`check` with many more examples of :func:`lies`.
"""

import json
import math
import resource
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from hypothesis.strategies import SearchStrategy

from fedcohort.flower import messages
from fedcohort.runs.events import read_events
from support.flower_tiny import CLIENTS
from support.inprocess import FIRST
from support.misbehaviour import BAD
from support.rehearsed import attacked

# Between them, these methods ask every question.
POLLING, SPLITTING = "power_of_choice+cafa+ifca(groups=2)", "fedentropy+cfl(eps1=9.0, eps2=0.0)+scaffold"
METHODS = {
    kind: SPLITTING if kind in (messages.UPDATE, messages.MEMORY) else POLLING for kind in messages.KINDS
}
ROUNDS = 2
MEMORY = 1 << 29  # bytes by which no single answer may make the server grow

FACTS = [
    *("name", "sizes", "classes", "shape", "vocabulary", "loss", "train_loss"),
    *("steps", "size", "reach", "right", "trained", "code"),
]
TENSORS = {
    "counts": ("counts",),
    "summaries": ("haccs",),
    "trace": ("trace",),
    "probes": ("loss_before", "outputs"),
    "update": ("delta", "buffers", "change"),
    "answer": ("answer",),
    "accuracy": ("accuracy",),
    "memory": ("c",),
    "by_class": ("answers", "odds"),
}


class Lie(NamedTuple):
    """How an honest answer is changed before it arrives."""

    facts: dict[str, object]
    text: str | None  # instead of all facts
    tensors: dict[tuple[str, str], Array]
    alone: bool  # nothing of the honest answer is left

    def told(self, reply: Message) -> Message:
        honest = json.loads(str(reply.content.config_records["facts"]["json"]))
        if self.alone:
            reply.content.clear()
        facts = {**({} if self.alone else honest), **self.facts}
        text = json.dumps(facts) if self.text is None else self.text
        reply.content["facts"] = ConfigRecord({"json": text})
        for (name, key), array in self.tensors.items():
            record = reply.content.get(name)
            known = dict(record) if isinstance(record, ArrayRecord) else {}
            reply.content[name] = ArrayRecord({**known, key: array})
        return reply


def numbers() -> SearchStrategy[object]:
    odd = (
        0,
        -1,
        1,
        26,
        2**31,
        2**63,
        10**30,
        10**400,
        -0.0,
        1e-300,
        1e30,
        1e308,
        math.inf,
        -math.inf,
        math.nan,
    )
    return st.sampled_from(odd) | st.integers() | st.floats()


def trees() -> SearchStrategy[object]:
    """What JSON can hold."""
    words = st.text(st.characters(exclude_categories=()), max_size=30) | st.just("9" * 5000)
    leaves = st.none() | st.booleans() | numbers() | words | st.just("client 1")
    inner = st.dictionaries(st.sampled_from(FACTS), leaves, max_size=4)
    return st.recursive(leaves | inner, lambda each: st.lists(each, max_size=6), max_leaves=12)


def arrays() -> SearchStrategy[Array]:
    """Numbers of any kind and shape, and bytes that say that they are."""
    kinds = st.sampled_from(
        [np.float32, np.float64, np.int64, np.float16, np.complex64, np.bool_, "U3", "M8[s]"]
    )
    shapes = st.sampled_from([(), (1,), (4,), (8,), (140,), (12, 3), (0,), (2, 0)]) | hnp.array_shapes(
        min_dims=0
    )
    whole = hnp.arrays(kinds, shapes).map(Array)
    extreme = st.sampled_from([0.0, -1.0, 1e30, 3e38, math.inf, math.nan])
    flat = st.builds(
        lambda kind, side, x: Array(np.full(side, x).astype(kind)), kinds.filter(_is_real), shapes, extreme
    )
    sides = st.lists(st.integers(-2, 10**13), max_size=10).map(tuple)
    words = st.sampled_from(["float32", "int64", "object", "V8", ""])
    formats = st.sampled_from(["numpy.ndarray", "pickle"])
    magic = st.binary(max_size=40).map(lambda rest: b"\x93NUMPY\x01\x00" + rest)
    return whole | flat | st.builds(Array, words, sides, formats, st.binary(max_size=60) | magic)


def _is_real(kind: object) -> bool:
    return kind in (np.float32, np.float64)


def lies() -> SearchStrategy[Lie]:
    names = [(name, key) for name, keys in TENSORS.items() for key in keys]
    facts = st.dictionaries(st.sampled_from(FACTS), trees(), max_size=5)
    texts = st.none() | st.text(max_size=20) | trees().map(json.dumps) | st.just("[" * 10**5)
    tensors = st.dictionaries(st.sampled_from(names), arrays(), max_size=4)
    return st.builds(Lie, facts, st.none() | texts, tensors, st.sampled_from([False, False, True]))


def check(kind: str, lie: Lie) -> None:
    """The run ends, the others train in it, all its numbers are numbers, and memory does not grow."""

    def spoil(asked: str, node: int, reply: Message) -> Message:
        return lie.told(reply) if (asked, node) == (kind, BAD) else reply

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        result = attacked(Path(folder), METHODS[kind], spoil, rounds=ROUNDS, evaluate={"every": 1})
        (directory,) = Path(folder).glob("experiment-*/*/")
        read_events(directory)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY >> 10
    assert result.state.round == ROUNDS
    assert all(value.isfinite().all() for group in result.state.groups for value in group.weights)
    trained = {row.client for row in result.rows if row.metric == "trained" and row.value}
    others = {f"client {number}" for number in range(CLIENTS) if FIRST + number != BAD}
    assert trained >= others if METHODS[kind] == POLLING else trained & others
    assert 0 <= result.metrics["global.accuracy"] <= 1
    assert math.isfinite(result.metrics["global.loss"])
