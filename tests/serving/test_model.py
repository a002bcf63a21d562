"""A model folder: what it answers in memory, and that a damaged or hostile one is a sentence and no more."""

import hashlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save
from torch import nn

from fedcohort.data.columns import Column
from fedcohort.data.preparation import Preparation
from fedcohort.models import MODELS, flat_model
from fedcohort.models.last_layer import last_layer
from fedcohort.serving.architecture import EXAMPLE, Architecture
from fedcohort.serving.model import FACTS, WEIGHTS, ServedModel, load_model
from fedcohort.serving.rows import read_rows
from fedcohort.util.errors import UserError

SEX = Column("sex", levels=("", "f", "m"))
TABLE = Preparation((Column("age"), Column("dose", fill=True), SEX), gaps="mean", scale="federated")
ROWS = pl.DataFrame({"sex": ["m", "f"], "dose": [None, 1.5], "age": [50, 61], "name": ["a", "b"]})


def a_model(
    preparation: Preparation = TABLE, shape: tuple[int, ...] = (5,), vocabulary: int = 0
) -> ServedModel:
    torch.manual_seed(0)
    name = "embedding_lstm" if vocabulary else "mlp"
    settings = {"units": 3} if vocabulary else {"widths": [4]}
    architecture = Architecture(name, settings, shape, vocabulary)
    network = architecture.empty(2)[0].to_empty(device="cpu")
    for tensor in network.parameters():
        nn.init.normal_(tensor)
    scaling = None
    if not vocabulary:
        scaling = preparation.own_scale(2 * torch.randn(9, *shape))
    return ServedModel(network, architecture, ("ill", "well"), preparation, scaling, "client a").eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    a_model().save(tmp_path / "model")
    return tmp_path / "model"


def test_what_is_read_is_what_was_written(folder: Path) -> None:
    model = load_model(folder)
    assert isinstance(model, nn.Module)
    assert np.array_equal(model.predict_proba(ROWS), a_model().predict_proba(ROWS))
    assert model.serves == "client a"
    x = torch.tensor([[50.0, float("nan"), 0, 0, 1]])
    assert torch.allclose(
        model(x).double().softmax(1), torch.tensor(model.predict_proba(ROWS[:1])), atol=1e-7
    )


def test_columns_in_any_order_in_frames_of_any_kind() -> None:
    model = a_model()
    answers = model.predict_proba(ROWS)
    assert np.array_equal(model.predict_proba(ROWS.select("age", "sex", "dose")), answers)
    frame = pd.DataFrame({"dose": [None, 1.5], "sex": ["m", "f"], "age": [50, 61]})
    assert np.array_equal(model.predict_proba(frame), answers)


def test_no_answer_below_the_threshold() -> None:
    model = a_model()
    highest = model.predict_proba(ROWS).max(1)
    assert highest[0] != highest[1]
    sure = model.predict(ROWS, threshold=float(highest.max()))
    assert [answer is None for answer in sure] == [bool(each < highest.max()) for each in highest]
    assert None not in model.predict(ROWS).tolist()
    with pytest.raises(UserError, match="threshold 70: probabilities are between 0 and 1"):
        model.predict(ROWS, threshold=70)


def test_strange_categories_are_counted_and_told() -> None:
    rows = ROWS.with_columns(sex=pl.Series(["x", "f"]))
    with pytest.warns(RuntimeWarning, match=r"'sex' .* in 1 of 2 rows \('x'\)"):
        strange = a_model().predict_proba(rows)
    assert np.array_equal(strange[1], a_model().predict_proba(ROWS)[1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a_model().predict_proba(ROWS)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (ROWS.drop("age", "sex"), "no column 'age', 'sex'"),
        (ROWS.with_columns(age=pl.Series(["old", "61"])), "'old' in row 1 .*correct it$"),
        (ROWS.with_columns(age=pl.Series([None, 61])), "'age' is empty in 1 of 2 rows"),
        (ROWS.with_columns(age=pl.Series([1e29, 61])), "too far"),
        (ROWS[:0], "no rows"),
        (np.zeros((2, 5)), "columns age, dose, sex"),
    ],
)
def test_rows_that_cannot_be_answered(rows: Any, words: str) -> None:
    model = a_model()
    with torch.no_grad():
        for tensor in model.network.parameters():
            tensor.mul_(1e20)
    with pytest.raises(UserError, match=words):
        model.predict_proba(rows)


def test_arrays_and_texts() -> None:
    arrays = a_model(Preparation(scale="client"), (2, 3))
    assert arrays.predict_proba(np.ones((4, 2, 3))).shape == (4, 2)
    for wrong, words in (
        (np.ones((4, 2)), "shape"),
        (np.full((1, 2, 3), np.nan), "NaN"),
        (np.ones((0, 2, 3)), "no"),
    ):
        with pytest.raises(UserError, match=words):
            arrays.predict_proba(wrong)
    texts = a_model(Preparation((), "note", ("pain", "no"), 4), (4,), 4)
    frame = pl.DataFrame({"note": ["No pain!", None]})
    np.testing.assert_allclose(texts.predict_proba(["no pain", ""]), texts.predict_proba(frame), atol=1e-7)
    tokens = a_model(Preparation(), (4,), 4)
    ids = tokens.predict_proba(np.array([[0, 0, 3, 2]]))
    np.testing.assert_allclose(ids, texts.predict_proba(["no pain"]), atol=1e-7)
    with pytest.raises(UserError, match="from 0 to 3"):
        tokens.predict_proba(np.array([[0, 0, 4, 2]]))


def test_a_row_in_which_nothing_is_known_keeps_its_place(tmp_path: Path) -> None:
    texts = Preparation((), "note", ("pain", "no"), 4)
    (tmp_path / "notes.csv").write_text("note\npain\n\nno\n\n\n")
    assert read_rows(tmp_path / "notes.csv", texts)["note"].to_list() == ["pain", None, "no"]
    (tmp_path / "notes.csv").write_text("note\n\n")
    with pytest.raises(UserError, match="no rows"):
        a_model(texts, (4,), 4).predict(read_rows(tmp_path / "notes.csv", texts))


def test_many_rows_are_answered_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.concat([ROWS] * 7)
    answers = a_model().predict_proba(rows)
    monkeypatch.setattr("fedcohort.serving.model.CELLS", 15)
    np.testing.assert_allclose(a_model().predict_proba(rows), answers, atol=1e-7)


def forged(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    facts = json.loads((folder / FACTS).read_text())
    change(facts)
    (folder / FACTS).write_text(json.dumps(facts))


def with_weights(folder: Path, data: bytes) -> None:
    """With the digest that belongs to them: who writes a folder writes both."""
    (folder / WEIGHTS).write_bytes(data)
    forged(folder, lambda facts: facts.update(weights=hashlib.sha256(data).hexdigest()))


COLUMNS = ["preparation", "columns"]
LIES: dict[str, tuple[list[str | int], Any]] = {
    "another version": (["format"], 2),
    "no version": (["format"], [[]]),
    "a giant": (["architecture", "settings", "widths"], [2**50]),
    "many layers": (["architecture", "settings", "widths"], [1] * 10**5),
    "odd settings": (["architecture", "settings", "colour"], 1),
    "settings of another kind": (["architecture", "settings"], "x"),
    "large examples": (["architecture", "shape"], [EXAMPLE, EXAMPLE]),
    "examples of other columns": (["architecture", "shape"], [6]),
    "no shape": (["architecture", "shape"], []),
    "merged where nothing is": (["architecture", "encoders"], 2),
    "very many encoders": (["architecture", "encoders"], 10**9),
    "many encoders of many layers": (
        ["architecture"],
        {"name": "mlp", "settings": {"widths": [1] * 100}, "shape": [5], "encoders": 1000, "last": "201"},
    ),
    "merged before its last layer": (
        ["architecture"],
        {"name": "mlp", "settings": {"widths": [4]}, "shape": [5], "encoders": 2, "last": "1"},
    ),
    "a layer that is very wide": (["architecture", "settings", "widths"], [2**29]),
    "a very wide text": ([*COLUMNS, 0, "text_width"], 2**53),
    "columns that make fewer features": ([*COLUMNS, 2, "levels"], ["f"]),
    "a column of nothing": ([*COLUMNS, 0, "name"], None),
    "columns that are none": (COLUMNS, 7),
    "long texts": (["preparation", "length"], 2**40),
    "a scale of others": (["scaling", "mean"], [0.0]),
    "a scale beyond numbers": (["scaling", "mean", 0], 10**400),
    "a scale of zero": (["scaling", "std", 0], 0),
    "no scale": (["scaling"], None),
    "a class twice": (["classes"], ["ill", "ill"]),
    "more classes": (["classes"], ["ill", "well", "dead"]),
    "very many classes": (["classes"], [str(number) for number in range(10**5)]),
    "a class that is no text": (["classes"], ["ill", "\ud800"]),
    "a column that is no text": ([*COLUMNS, 0, "name"], "\udfff"),
    "a part that is missing": (["serves"], None),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_folder_that_lies_is_one_sentence(lie: str, folder: Path) -> None:
    (*path, last), value = LIES[lie]

    def change(facts: dict[str, Any]) -> None:
        here: Any = facts
        for key in path:
            here = here[key]
        here[last] = value

    forged(folder, change)
    with pytest.raises(UserError, match="export the model again"):
        load_model(folder)


@pytest.mark.parametrize("kind", ["layer", "image"])
def test_wide_layers_are_filled_for_few_rows_at_a_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may ask for a lot of memory by what it makes of a row."""
    shape = (5,) if kind == "layer" else (1, 28, 28)
    name, settings = ("mlp", {"widths": [4000]}) if kind == "layer" else ("fedgwc_cnn", {})
    architecture = Architecture(name, settings, shape)
    network, widest = architecture.empty(2)
    assert widest == (4000 if kind == "layer" else 64 * 28 * 28)
    model = ServedModel(network, architecture, ("ill", "well"), Preparation(), None, widest=widest)
    monkeypatch.setattr("fedcohort.serving.model.WIDE", 3 * widest)
    sizes = [len(x) for x in model._examples(np.zeros((7, *shape), dtype=np.float32))]
    assert sizes == [3, 3, 1]


def test_networks_end_with_the_layer_at_which_they_are_merged() -> None:
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "mlp": ((5,), 0), "logistic": ((5,), 0), "embedding_lstm": ((4,), 9), "embedding_dense": ((4,), 9),
    }  # fmt: skip
    for name in MODELS.names():
        shape, vocabulary = shapes.get(name, ((3, 32, 32), 0))
        last, _ = last_layer(flat_model(name, shape, 3, vocabulary=vocabulary))
        merged = Architecture(name, {}, shape, vocabulary, encoders=2, last=last)
        assert merged.empty(3)[0].get_submodule("encoders.0") is not None


def test_weights_that_are_none(folder: Path) -> None:
    good = load_file(folder / WEIGHTS)
    first = next(iter(good))
    lies = {
        "NaN": save({**good, first: torch.full_like(good[first], float("nan"))}),
        "another network": save({**good, first: good[first][:1].clone()}),
        "another": save({**good, first: good[first].double()}),
        "damaged": (2**60).to_bytes(8, "little") + b"{}",
    }
    for words, data in lies.items():
        with_weights(folder, data)
        with pytest.raises(UserError, match=words):
            load_model(folder)
    (folder / WEIGHTS).write_bytes(save(good)[:-1] + b"\x07")
    with pytest.raises(UserError, match="not what was written"):
        load_model(folder)


def test_a_file_elsewhere_is_not_read(folder: Path) -> None:
    for name in (WEIGHTS, FACTS):
        moved = folder.parent / name
        (folder / name).rename(moved)
        (folder / name).symlink_to(moved)
        with pytest.raises(UserError, match="it is a link"):
            load_model(folder)
        (folder / name).unlink()
        moved.rename(folder / name)
    (folder / FACTS).write_text("[" * 10**5)
    with pytest.raises(UserError, match="damaged"):
        load_model(folder)
    with pytest.raises(UserError, match="no model folder"):
        load_model(folder.parent)


def test_somebodys_code_runs_only_if_it_is_allowed(folder: Path) -> None:
    forged(folder, lambda facts: facts["architecture"].update(name="../../networks/mlp"))
    with pytest.raises(UserError, match="not fedcohort's"):
        load_model(folder)
    with pytest.raises(UserError, match="unknown model"):
        load_model(folder, allow=["../../networks/mlp"])
    forged(folder, lambda facts: facts["architecture"].update(name="support.networks:normed", settings={}))
    with pytest.raises(UserError, match=r"--allow support\.networks:normed"):
        load_model(folder)
    with pytest.raises(UserError, match="another network"):
        load_model(folder, allow=["support.networks:normed"])
    net = nn.Sequential(nn.Flatten(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))
    before = net[1].weight.clone()
    model = load_model(folder, net=net)
    assert np.array_equal(model.predict_proba(ROWS), a_model().predict_proba(ROWS))
    assert torch.equal(net[1].weight, before)
