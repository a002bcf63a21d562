"""Answers of one client that lies, while the others are honest: the run must end well without it."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, Message

from fuzz import wild
from fuzz.draw import Draw

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.flower_tiny import CLIENTS
from support.inprocess import FIRST
from support.rehearsed import attacked

SHARE, SECONDS = 20, 60.0
LIAR = FIRST + 2
ORDER = ("scale", "array", "bytes", "fact")  # of changes: the first reads what the others would spoil
KINDS = (
    "query.profile",
    "query.loss",
    "query.survey",
    "train",
    "query.update",
    "evaluate",
    "query.cross",
    "query.memory",
)
METHODS = (
    "fedavg",
    "scaffold",
    "fednova",
    "qfedavg",
    "fedlecc",
    "haccs",
    "ifca",
    "fedentropy",
    "cafa",
    "clust_psi_pfl(features=4)",
)
TYPES = ("float32", "float64", "int64", "bool", "complex64", "object", "str", "V8", "float16", "nonsense", "")
SHAPES = ([], [0], [3], [2, 2], [10**12], [-1], [10**6, 10**6], [1] * 80)
FACTS = (
    "-1", "0", "1e308", "NaN", "Infinity", "null", "true", '""', '"x"', "[]", "{}", "[1e400]", "[[[]]]",
    "1" + "0" * 400, "1" + "0" * 30, "1" + "0" * 15, f"[1{'0' * 30}, 0, 0]", "[" * 3000 + "]" * 3000,
    '"\\ud800"', '"' + "9" * 5000 + '"',
)  # fmt: skip
BODIES = (
    b"",
    b"\0" * 64,
    b"PK\x03\x04",
    b"\x93NUMPY\x01\x00",
    b"\x80\x04.",
    b"\xff" * 128,
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }\n",
)


def make(draw: Draw) -> dict[str, Any]:
    changes = []
    for _ in range(1 + draw.below(2)):
        kind = draw.below(5)
        where = draw.below(16)
        if kind < 2:
            changes.append(
                ("fact", where, draw.pick(FACTS) if draw.below(3) else json.dumps(wild.text(draw)))
            )
        elif kind == 2:
            changes.append(("scale", where, draw.pick(("0", "-1", "1e30", "1e300", "nan", "inf", "1e9"))))
        elif kind == 3:
            changes.append(
                ("array", where, (draw.pick(TYPES), draw.pick(SHAPES), draw.pick(("numpy.ndarray", "x", ""))))
            )
        else:
            changes.append(("bytes", where, draw.pick(BODIES)))
    return {"method": draw.pick(METHODS), "kind": draw.pick(KINDS), "changes": changes}


def spoil(reply: Message, changes: list[Any]) -> Message:
    """The reply with these changes; what a change is about goes by its place among what the reply holds."""
    if not reply.has_content():
        return reply
    for how, where, what in sorted(changes, key=lambda change: ORDER.index(change[0])):
        arrays = [(own, key) for own in reply.content.array_records.values() for key in own]
        if how == "fact":
            record = reply.content.config_records.get("facts")
            known = _facts(record)
            if record is not None and known:
                key = sorted(known)[where % len(known)]
                others = [
                    f"{json.dumps(name)}: {json.dumps(value)}" for name, value in known.items() if name != key
                ]
                record["json"] = "{" + ", ".join([*others, f"{json.dumps(key)}: {what}"]) + "}"
        elif arrays:
            own, key = arrays[where % len(arrays)]
            own[key] = _odd_array(own[key], how, what)
    return reply


def _facts(record: Any) -> dict[str, Any]:
    """What a reply states, unless another change spoilt that already."""
    try:
        return dict(json.loads(str(record["json"])))
    except (TypeError, ValueError, RecursionError):
        return {}


def _odd_array(array: Array, how: str, what: Any) -> Array:
    if how == "scale":
        values = array.numpy()
        return Array(np.asarray(values * float(what), values.dtype))
    if how == "array":
        return Array(dtype=what[0], shape=tuple(what[1]), stype=what[2], data=array.data)
    return Array(dtype=array.dtype, shape=tuple(array.shape), stype=array.stype, data=what)


def try_case(case: dict[str, Any], home: Path) -> str:
    def lie(kind: str, node: int, reply: Message) -> Message:
        return spoil(reply, case["changes"]) if (kind, node) == (case["kind"], LIAR) else reply

    result = attacked(home, case["method"], lie)
    models = [group.weights.params for group in result.state.groups]
    assert all(bool(params.isfinite().all()) for params in models), "a model is not finite"
    metrics = {row.metric: row.value for row in result.rows if row.scope == "round"}
    kept = metrics["cohort"] - metrics["lost"] - metrics["rejected"]
    assert kept >= CLIENTS - 3, f"only {kept:.0f} of {CLIENTS} clients were heard"
    return "completed"
