"""The ClientApp of a deployment in which some clients lie: each of their answers is another attack.

Copied into an app as its client's part, so it stands alone. Two parts are honest. Three say the truth of
themselves and lie from then on, so that they take part; three lie at once. What was done is written down,
beside what the client keeps, one line of JSON for each attack.
"""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

HONEST, SLY, LIARS = (0, 1), (2, 3, 4), (5, 6, 7)  # parts of the experiment's data
FALLBACK = "deep JSON"
HUGE = 10**400  # an integer that JSON can hold and no float can

Arrays = dict[str, dict[str, Array]]
Payload = tuple[Any, Arrays]  # facts, or their JSON, and tensors
Spoil = Callable[[dict[str, Any], Arrays], Payload]


def told(**facts: Any) -> Spoil:
    """The true answer but for these facts."""
    return lambda true, arrays: ({**true, **facts}, arrays)


def sent(record: str, key: str, array: Array) -> Spoil:
    """The true answer but for this tensor."""
    return lambda true, arrays: (true, {**arrays, record: {**arrays.get(record, {}), key: array}})


def deep(true: dict[str, Any], arrays: Arrays) -> Payload:
    return "[" * 100_000 + "]" * 100_000, arrays


def numpy_file(header: str, data: bytes = b"") -> bytes:
    padded = header.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded.encode() + data


ENDLESS = Array(  # 4 TB, says its header
    "float32",
    (10**12,),
    "numpy.ndarray",
    numpy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"),
)
ARCHIVE = Array("float32", (650,), "numpy.ndarray", b"PK\x03\x04" + bytes(2000))
PICKLE = Array("float32", (650,), "numpy.ndarray", b"\x80\x04cos\nsystem\n(S'true'\ntR.")
COMPLEX = Array(np.full(650, 1j, dtype=np.complex64))
LARGE = Array(np.full(650, 1e30, dtype=np.float32))
NOT_NUMBERS = Array(np.full(650, np.nan, dtype=np.float32))

# By kind of message, in the order in which they are made: three in a round, of which one at most is of a size
# that only others' sizes give away.
ATTACKS: dict[str, list[tuple[str, Spoil]]] = {
    "query.profile": [
        (FALLBACK, deep),
        ("counts of 10^12 classes", sent("counts", "counts", ENDLESS)),
        ("sizes of 10^30", told(sizes=[10**30, 0, 0])),
        ("sizes of 10^15", told(sizes=[10**15, 0, 0])),
        ("a name of 5,000 digits", told(name="client " + "9" * 5000)),
        ("examples of another shape", told(shape=[3, 32, 32])),
        ("counts of 1e308", sent("counts", "counts", Array(np.full(10, 1e308)))),
        ("a name with surrogates", told(name="\ud800\udfff")),
        ("a summary of another shape", sent("summaries", "selector", Array(np.ones((3, 3))))),
    ],
    "query.loss": [
        ("a loss of 10^400", told(loss=HUGE)),
        ("a negative loss", told(loss=-1.0)),
        (FALLBACK, deep),
        ("a loss of 1e308", told(loss=1e308)),
    ],
    "train": [
        (FALLBACK, deep),
        ("an update of 1e30", sent("update", "delta", LARGE)),
        ("an update of 10^12 numbers", sent("update", "delta", ENDLESS)),
        ("a reach of 0", told(reach=0.0)),
        ("an archive for an update", sent("update", "delta", ARCHIVE)),
        ("a complex update", sent("update", "delta", COMPLEX)),
        ("a reach of 1e300", told(reach=1e300)),
        ("steps of 10^400", told(steps=HUGE)),
        ("a pickle for an update", sent("update", "delta", PICKLE)),
        ("a negative training loss", sent("trace", "trace", Array(np.full(1, -1e30, dtype=np.float32)))),
        ("an update of NaN", sent("update", "delta", NOT_NUMBERS)),
        ("a size of 10^15", told(size=10**15)),
    ],
    "evaluate": [
        ("a test loss of 10^400", told(loss=HUGE)),
        ("a negative test loss", told(loss=-5.0)),
        ("more right than there are", told(right=10**9)),
        (FALLBACK, deep),
        ("a test size of 10^30", told(size=10**30)),
        ("right of 10^400", told(right=HUGE)),
    ],
}
# What the first of the sly ones sends in every round of a method that asks for more than an update.
OF_METHODS: dict[str, tuple[str, Spoil]] = {
    "scaffold": ("a control variate of 1e30", sent("update", "change", LARGE)),
    "qfedavg": (
        "a negative loss before training",
        sent("probes", "loss_before", Array(np.array(-1, dtype=np.float32))),
    ),
}


class Malicious(ClientApp):
    """Honest at honest parts."""

    def __call__(self, message: Message, context: Context) -> Message:
        part, kind = int(context.node_config["partition-id"]), message.metadata.message_type
        if part in HONEST or (part in SLY and kind == "query.profile"):
            return honest(message, context)
        book = Path(str(context.node_config["keep"])) / "attacks"
        done = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
        question = json.loads(str(message.content.config_records["facts"]["json"]))
        method = question["run"]["method"][0]["name"]
        name, spoil = choose(kind, part, method, sum(line["kind"] == kind for line in done))
        line = {"kind": kind, "name": name, "part": part, "node": context.node_id}
        line |= {"token": question["token"], "round": question.get("number", -1) + 1}
        book.parent.mkdir(parents=True, exist_ok=True)
        with book.open("a") as file:
            file.write(json.dumps(line) + "\n")
        facts, arrays = spoil(*TRUE[kind](book.parent))
        return Message(written(facts, arrays), reply_to=message)


def honest(message: Message, context: Context) -> Message:
    """As it should be; who lies later remembers how many test samples it said to have."""
    from fedcohort.flower.client_app import app

    reply = app(message, context)
    if message.metadata.message_type == "query.profile":
        facts = json.loads(str(reply.content.config_records["facts"]["json"]))
        keep = Path(str(context.node_config["keep"]))
        keep.mkdir(parents=True, exist_ok=True)
        (keep / "sizes").write_text(json.dumps(facts["sizes"]))
    return reply


def choose(kind: str, part: int, method: str, before: int) -> tuple[str, Spoil]:
    """The next attack of this client: those of one trade take turns."""
    if kind == "train" and part == SLY[0] and method in OF_METHODS:
        return OF_METHODS[method]
    trade, known = SLY if part in SLY else LIARS, ATTACKS.get(kind, [])
    number = before * len(trade) + trade.index(part)
    own = (part in SLY) == (kind != "query.profile")
    return known[number] if own and number < len(known) else (FALLBACK, deep)


def sizes(keep: Path) -> list[int]:
    """Of training, validation and test data, as this client told them."""
    path = keep / "sizes"
    return json.loads(path.read_text()) if path.exists() else [100, 0, 20]


def true_profile(keep: Path) -> Payload:
    facts = {"name": "client 9", "sizes": sizes(keep), "shape": [1, 8, 8], "vocabulary": 0}
    classes = [str(digit) for digit in range(10)]
    return {**facts, "classes": classes}, {"counts": {"counts": Array(np.full(10, 10))}}


def true_update(keep: Path) -> Payload:
    """Of a client that took its three steps, and hardly moved; what a method asks beside is in its attack."""
    update = {"delta": np.full(650, 1e-3), "buffers": np.zeros(0)}
    records = {"update": update, "trace": {"trace": np.ones(1)}, "probes": {}}
    arrays = {n: {key: Array(v.astype(np.float32)) for key, v in own.items()} for n, own in records.items()}
    return {"steps": 3, "reach": 3.0, "size": sizes(keep)[0]}, arrays


def true_scores(keep: Path) -> Payload:
    return {"size": sizes(keep)[2], "right": 1, "loss": 2.0, "train_loss": 2.0}, {}


TRUE: dict[str, Callable[[Path], Payload]] = {
    "query.profile": true_profile,
    "query.loss": lambda keep: ({"loss": 2.0}, {}),
    "train": true_update,
    "evaluate": true_scores,
}


def written(facts: Any, arrays: Arrays) -> RecordDict:
    text = facts if isinstance(facts, str) else json.dumps(facts)
    content = RecordDict({"facts": ConfigRecord({"json": text})})
    for name, own in arrays.items():
        content[name] = ArrayRecord(own)
    return content


app = Malicious()
