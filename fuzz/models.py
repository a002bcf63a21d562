"""Model folders of somebody else: a real one with something changed, then rows are answered by it.

Who writes a folder also writes the digest of its weights, so changed weights have the right one.
"""

import csv
import hashlib
import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedcohort.data.columns import Column
from fedcohort.data.preparation import Preparation
from fedcohort.data.scaling import Scale
from fedcohort.serving.architecture import Architecture
from fedcohort.serving.model import FACTS, WEIGHTS, ServedModel
from fuzz import wild
from fuzz.draw import Draw
from fuzz.run_dirs import ORDERS, call, change, changed_head, json_value

SHARE, SECONDS = 40, 20.0
COLUMNS = (
    Column("age"),
    Column("dose", fill=True),
    Column("sex", levels=("f", "m")),
    Column("note", text_width=4),
)
TABLE = Preparation(COLUMNS, gaps="mean", scale="federated")
TEXTS = Preparation((), "note", ("pain", "no"), 4)
MODELS = {
    "table": (Architecture("mlp", {"widths": [4]}, (8,)), TABLE),
    "merged": (Architecture("mlp", {"widths": [4]}, (8,), encoders=2, last="3"), TABLE),
    "texts": (Architecture("embedding_lstm", {"units": 3}, (4,), 4), TEXTS),
    "images": (Architecture("lenet5", {}, (1, 28, 28)), Preparation()),
}
ROWS = "age,dose,sex,note\n50,1.5,f,no pain\n61,,m,\n"
WAYS = ("predict", "sure", "named", "kept")


@cache
def template(kind: str) -> dict[str, bytes]:
    architecture, preparation = MODELS[kind]
    network = architecture.empty(2)[0].to_empty(device="cpu")
    for tensor in (*network.parameters(), *network.buffers()):
        torch.nn.init.constant_(tensor, 0.1)
    width = architecture.shape[0]
    scaling = None if architecture.vocabulary else Scale.plain(width)
    model = ServedModel(network, architecture, ("ill", "well"), preparation, scaling, "client a")
    with tempfile.TemporaryDirectory() as place:
        model.save(Path(place))
        return {name: (Path(place) / name).read_bytes() for name in (FACTS, WEIGHTS)}


def make(draw: Draw) -> dict[str, Any]:
    kind = draw.pick(tuple(MODELS))
    files = template(kind)
    facts, weights = json.loads(files[FACTS]), files[WEIGHTS]
    if draw.one_in(4):
        weights = changed_head(draw, weights) if draw.below(2) else wild.damaged(draw, weights)
        facts["weights"] = hashlib.sha256(weights).hexdigest()
    if draw.below(4):
        for _ in range(1 + draw.below(2)):
            change(draw, facts, json_value)
    told = json.dumps(facts).encode()
    if draw.one_in(12):
        told = wild.damaged(draw, told)
    changed = {name: new for name, new in ((FACTS, told), (WEIGHTS, weights)) if new != files[name]}
    return {"kind": kind, "changed": changed, "way": draw.pick(WAYS)}


def try_case(case: dict[str, Any], home: Path) -> str:
    way = case["way"]
    folder = home / "fedcohort/0123abcd/a/served" if way == "kept" else home / "model"
    folder.mkdir(parents=True)
    for name, content in (template(case["kind"]) | case["changed"]).items():
        (folder / name).write_bytes(content)
    rows, out = home / ("rows.npz" if case["kind"] == "images" else "rows.csv"), home / "answers.csv"
    if case["kind"] == "images":
        np.savez(rows, x=np.zeros((2, 1, 28, 28)))
    else:
        rows.write_text(ROWS)
    words = {
        "kept": ["export", str(home), "--out", str(home / "out"), "--trust"],
        "sure": ["predict", str(folder), str(rows), "--out", str(out), "--threshold", "0.9"],
        "named": ["predict", str(folder), str(rows), "--out", str(out), "--id", "note"],
        "predict": ["predict", str(folder), str(rows), "--out", str(out)],
    }[way]
    code = call(words)
    if out.exists():
        _check(out)
    return f"{way}: {'refused' if code else 'done'}"


def _check(answers: Path) -> None:
    """A line for each row, and no cell that a spreadsheet would compute."""
    lines = list(csv.reader(io.StringIO(answers.read_text(encoding="utf-8"))))
    assert len(lines) == 3, "not as many answers as rows"
    for cell in (cell for line in lines for cell in line):
        assert not ORDERS & {*cell}, "a cell speaks to the terminal"
        assert cell[:1] not in ("=", "@"), "a cell is a formula"
