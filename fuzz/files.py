"""Files of data in fixed layouts, damaged: IDX, npz, npy, CIFAR's records and pickles, speeches, tweets."""

import gzip
import io
import json
import pickle
import struct
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedcohort.data import Places, SplitPlan, federate
from fedcohort.data.partition import partitioner
from fedcohort.data.sources import SOURCES
from fedcohort.util.settings import build
from fuzz.draw import Draw
from fuzz.guard import CANARY
from fuzz.wild import damaged

SHARE, SECONDS = 200, 10.0
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
SHAPES = (
    (),
    (0,),
    (6,),
    (6, 4),
    (6, 3, 3),
    (6, 0),
    (2, 3),
    (6, 1, 2, 2),
    (10**6, 10**6),
    (2**40,),
    (-1,),
    (6, 2**62),
)
KINDS = (
    "<f4",
    "<f8",
    "<i8",
    "<i4",
    "|u1",
    "|b1",
    "<c16",
    "<U3",
    "|S3",
    "|O",
    "<f2",
    ">f4",
    "<M8[D]",
    "|V8",
    "<u8",
)
ZEROS = 50_000_000  # bytes that a bomb unpacks to


class Bomb:
    """Unpickling it imports the canary and calls it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, (CANARY,)


def make(draw: Draw) -> dict[str, Any]:
    layout = draw.pick(sorted(LAYOUTS))
    files = LAYOUTS[layout](draw)
    if draw.below(2):
        name = draw.pick(sorted(files))
        files[name] = damaged(draw, files[name])
    if draw.one_in(40):
        del files[draw.pick(sorted(files))]
    return {"layout": layout, "files": files}


def _idx(draw: Draw) -> dict[str, bytes]:
    count, gzipped = draw.below(8), draw.one_in(3)
    kind = draw.pick((8, 8, 8, 8, 9, 11, 12, 13, 14, 0))
    shape = draw.pick(
        ((count, 3, 3), (count, 3, 3), (count, 1, 3, 3), (count,), (), (count, 0, 3), (2**31, 2**31, 4))
    )
    head = bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape)
    size = {9: 1, 11: 2, 12: 4, 13: 4, 14: 8}.get(kind, 1) * min(int(np.prod(shape, dtype=object)), 4096)
    files = {
        IMAGES: head + bytes(draw.below(256) for _ in range(min(size, 200))).ljust(size, b"\1"),
        LABELS: bytes((0, 0, 8, 1)) + struct.pack(">I", count) + bytes(k % 3 for k in range(count)),
    }
    if draw.one_in(3):
        files |= {name.replace("train", "t10k"): content for name, content in files.items()}
    if draw.one_in(60):
        files[IMAGES] = _zeros_gz()
    elif gzipped:
        files = {name: gzip.compress(content, mtime=0) for name, content in files.items()}
    return files


@cache
def _zeros_gz() -> bytes:
    """A file of a thousandth of its contents, which claims to be images."""
    head = bytes((0, 0, 8, 3)) + struct.pack(">3I", 1, 1, ZEROS)
    return gzip.compress(head + bytes(ZEROS), mtime=0)


def _npy(draw: Draw, shape: tuple[int, ...], kind: str) -> bytes:
    """An array's file; its header may promise what is not there."""
    count = min(abs(int(np.prod(shape, dtype=object))), 64)
    head = repr({"descr": kind, "fortran_order": draw.one_in(4), "shape": shape}).encode()
    body = bytes(draw.below(256) if draw.one_in(4) else k % 3 for k in range(count * 8))
    if kind == "|O":
        body = pickle.dumps(np.array([Bomb()] * 2, dtype=object))
    width = np.dtype(kind).itemsize
    body = body[: count * width] if draw.below(4) else body
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + body


def _npz(draw: Draw) -> dict[str, bytes]:
    out = io.BytesIO()
    names = ["x", "y", *draw.some(("x_test", "y_test", "client", "client_test", "../../evil", "z"), 3)]
    with zipfile.ZipFile(out, "w", draw.pick((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name in names:
            usual = {"x": ((6, 4), "<f4"), "y": ((6,), "|u1"), "client": ((6,), "<U3")}.get(
                name, ((6,), "<i8")
            )
            shape, kind = usual if draw.below(6) else (draw.pick(SHAPES), draw.pick(KINDS))
            archive.writestr(f"{name}.npy", _npy(draw, shape, kind))
        if draw.one_in(60):
            archive.writestr("bomb.npy", _zeros_npy(), zipfile.ZIP_DEFLATED)
    if draw.one_in(20):
        return {"data.npz": _npy(draw, draw.pick(SHAPES), draw.pick(KINDS))}
    return {"data.npz": out.getvalue()}


@cache
def _zeros_npy() -> bytes:
    head = repr({"descr": "|u1", "fortran_order": False, "shape": (ZEROS,)}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + bytes(ZEROS)


def _records(draw: Draw) -> dict[str, bytes]:
    record = 3072 + 1
    return {
        f"{name}.bin": bytes((draw.below(12),)) + bytes(record - 1)
        for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
    }


def _pickles(draw: Draw) -> dict[str, bytes]:
    table: dict[Any, Any] = {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}
    odd = (
        table, table, {"data": Bomb(), "labels": [0]}, [1],
        {"data": np.zeros((2, 7), np.uint8), "labels": [0, 1]},
        {"data": 1, "labels": 2}, {b"data": None, b"labels": {}},
        {"data": np.zeros((2, 3072)), "labels": ["a", "b"]},
        {"data": np.zeros((2, 3072)), "labels": [10**30, 1]}, {(1, 2): 3},
    )  # fmt: skip
    names = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
    return {name: pickle.dumps(draw.pick(odd), protocol=draw.below(5)) for name in names}


def _speeches(draw: Draw) -> dict[str, bytes]:
    texts = ("to be or not to be, " * 8, "", "ä" * 200, "\ud800", 3, None, ["a"], {"a": 1})
    lines = []
    for _ in range(1 + draw.below(5)):
        text = draw.pick(texts[:3]) if draw.below(6) else draw.pick(texts)
        lines.append(json.dumps({"play": "p", "role": f"r{draw.below(3)}", "text": text}))
    if draw.one_in(6):
        lines.append(draw.pick(("[]", "1", "", "[" * 5000, '{"play": 1}', "NaN", "9" * 5000)))
    content = "\n".join(lines).encode()
    return (
        {"speeches.jsonl.gz": gzip.compress(content, mtime=0)}
        if draw.one_in(3)
        else {"speeches.jsonl": content}
    )


def _tweets(draw: Draw) -> dict[str, bytes]:
    rows = [
        f'"{draw.pick("0042x")}","1","d","q","u{k % 3}","word {draw.pick(("good", "", "bad"))}"'
        for k in range(9)
    ]
    if draw.one_in(5):
        rows.insert(draw.below(9), draw.pick(("", "0", "\x00", "0,1", '"', "a" * 200_000, ",,,,,")))
    return {"training.1600000.processed.noemoticon.csv": "\n".join(rows).encode()}


LAYOUTS = {
    "cifar10": _records, "cifar10_pickles": _pickles, "idx": _idx, "npz": _npz, "sent140": _tweets,
    "shakespeare": _speeches,
}  # fmt: skip


def try_case(case: dict[str, Any], home: Path) -> str:
    for name, content in case["files"].items():
        (home / name).write_bytes(content)
    source = case["layout"].partition("_")[0]
    path = str(home / "data.npz") if source == "npz" else str(home)
    dataset = build(SOURCES.get(source), {"path": path}, "data").load(
        Places(cache=home / "cache", offline=True)
    )
    by = partitioner("natural") if dataset.owner is not None else partitioner("iid", clients=2)
    federation = federate(dataset, by, SplitPlan())
    assert bool(np.isfinite(federation.train.x.numpy()).all()), "an example is not finite"
    return f"read as {source}"
