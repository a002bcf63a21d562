"""Tables of users: CSV and Parquet with odd names, cells and bytes, read as data, counts and numbers."""

import csv
import gzip
import io
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedcohort.data import Federation, Places, SplitPlan, federate
from fedcohort.data.partition import partitioner
from fedcohort.data.sources import SOURCES
from fedcohort.diagnosis.read import read_counts, read_numbers
from fedcohort.util.names import safe_name
from fedcohort.util.settings import build
from fuzz import wild
from fuzz.draw import Draw
from fuzz.wild import damaged

SHARE, SECONDS = 360, 10.0
NAMES = ("site", "label", "a", "b", "client", "id", "x y", "@file", "")
CELLS = (
    "1", "2", "0", "0.5", "-3", "1e3", "x", "y", "", "NA", "nan", "inf", "-inf", "1e400", "1,5", " 7 ",
    "3.0", "?",
    "99999999999999999999", "2020-01-01", "true", "31.12.2020", "2020-01-01 25:00", "May 5, 2020",
)  # fmt: skip
COLUMNS: dict[str, Any] = {
    "ints": [1, 2, 3, None, 5, 6],
    "large": [2**63 - 1, 0, 1, 2, 3, 4],
    "floats": [0.5, float("nan"), float("inf"), 1e308, None, 0.0],
    "words": ["a", "b", "=1+1", "\x00", None, "a\nb"],
    "truth": [True, False, None, True, False, True],
    "dates": [date(2020, 1, 1)] * 6,
    "bytes": [b"\xff", b"", b"a", None, b"b", b"c"],
    "lists": [[1], [], [1, 2], None, [3], [4]],
    "tables": [{"a": 1}] * 6,
    "nothing": [None] * 6,
}
OPTIONS = (
    "client", "header", "separator", "missing", "threshold", "categorical", "empty", "exclude", "dates",
    "date_order", "drop_incomplete", "bins", "decimal",
)  # fmt: skip
SOURCES_OF = ("table", "table", "text", "counts", "counts", "long", "numbers")


def make(draw: Draw) -> dict[str, Any]:
    kind = draw.pick(("csv", "csv", "csv", "csv", "gz", "parquet"))
    names = [draw.pick(NAMES) if draw.below(8) else wild.text(draw) for _ in range(1 + draw.below(6))]
    names = names if draw.one_in(8) else list(dict.fromkeys(names))
    content = _parquet(draw, names) if kind == "parquet" else _csv(draw, names)
    if draw.one_in(6):
        content = damaged(draw, content)
    if kind == "gz":
        content = gzip.compress(content, mtime=0)
        if draw.one_in(6):
            content = damaged(draw, content)
    options: dict[str, Any] = {"label": _column(draw, names), "text": _column(draw, names)}
    for option in draw.some(OPTIONS, 3):
        options[option] = {
            "client": _column(draw, names),
            "header": False,
            "separator": draw.pick((";", "\t", "|", "", "ab", "ä", '"', "\n", "\x00")),
            "missing": draw.pick(("mean", "median", "constant")),
            "threshold": draw.pick((0.5, 1.0, -1e9)),
            "categorical": [_column(draw, names)],
            "empty": [wild.text(draw)],
            "exclude": [_column(draw, names)],
            "dates": [_column(draw, names)],
            "date_order": draw.pick(("dmy", "mdy")),
            "drop_incomplete": True,
            "bins": draw.pick((2, 5, [0.5], [1, 1e9])),
            "decimal": ",",
        }[option]
    file = {"csv": "t.csv", "gz": "t.csv.gz", "parquet": "t.parquet"}[kind]
    return {"file": file, "bytes": content, "as": draw.pick(SOURCES_OF), "options": options}


def _column(draw: Draw, names: list[str]) -> str:
    return draw.pick(names) if draw.below(10) else draw.pick(("nowhere", "column_1", "@file"))


def _csv(draw: Draw, names: list[str]) -> bytes:
    out = io.StringIO()
    separator = ";" if draw.one_in(12) else ","
    writer = csv.writer(
        out, delimiter=separator, lineterminator=draw.pick(("\n", "\r\n", "\n", "\n", "\n", "\r"))
    )
    writer.writerow(names)
    cells = [draw.pick((CELLS, CELLS[:5], CELLS[:4], CELLS[:3], CELLS[6:8])) for _ in names]
    for _ in range(draw.below(16)):
        row = [draw.pick(own) if draw.below(30) else wild.text(draw) for own in cells]
        writer.writerow(row if draw.below(40) else row[1:])
    text = out.getvalue()
    start = draw.pick(("\ufeff", "\n", " \n")) if draw.one_in(12) else ""
    return (start + text).encode(
        draw.pick(("latin-1", "utf-16")) if draw.one_in(12) else "utf-8", errors="replace"
    )


def _parquet(draw: Draw, names: list[str]) -> bytes:
    kinds = {name: draw.pick(sorted(COLUMNS)) for name in names}
    height = draw.below(7)
    columns = {name: pl.Series(COLUMNS[kind][:height], strict=False) for name, kind in kinds.items()}
    out = io.BytesIO()
    pl.DataFrame(columns).write_parquet(
        out, compression=draw.pick(("uncompressed", "zstd", "gzip", "snappy"))
    )
    return out.getvalue()


def try_case(case: dict[str, Any], home: Path) -> str:
    (home / case["file"]).write_bytes(case["bytes"])
    file, options, read_as = str(home / case["file"]), dict(case["options"]), case["as"]
    client = options.get("client")
    if read_as in ("counts", "long"):
        label = options["label"] if read_as == "long" else None
        _refuse_odd_names(
            read_counts(file, client, label, single=bool(options.get("header", True))).client_names
        )
    elif read_as == "numbers":
        _refuse_odd_names(read_numbers(file, client)[1])
    else:
        known = ("label", "text", "client", "header", "separator") if read_as == "text" else tuple(options)
        given = {key: value for key, value in options.items() if key in known}
        if read_as == "table":
            del given["text"]
        source = build(SOURCES.get(read_as), {"path": file, **given}, "data")
        dataset = source.load(Places())
        protocol = partitioner("natural") if client else partitioner("iid", clients=2)
        _refuse_odd_names(_federation(dataset, protocol).clients)
    return f"read as {read_as}"


def _federation(dataset: Any, protocol: Any) -> Federation:
    federation = federate(dataset, protocol, SplitPlan())
    assert bool(np.isfinite(federation.train.x.numpy()).all()), "an example is not finite"
    return federation


def _refuse_odd_names(names: Any) -> None:
    odd = [name for name in names if name != safe_name(name)]
    assert not odd, f"a name that is not fit to be printed: {odd[0]!r}"
    assert len(set(names)) == len(list(names)), "two clients of one name"
