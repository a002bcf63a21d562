"""Data in memory: arrays, frames and torch Datasets become the data set that a file with them would."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import fedcohort as fc
from fedcohort.data.given import fingerprint_of

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(30, 4)), np.arange(30) % 3
CLIENTS = np.array([f"site {row % 5}" for row in range(30)])


class Pairs(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.tensor(X[place]), int(Y[place])


def test_arrays_a_torch_dataset_and_a_file_are_the_same_data(tmp_path: Path):
    np.savez(tmp_path / "data.npz", x=X, y=Y, client=CLIENTS)
    stored = fc.load("npz", path=str(tmp_path / "data.npz"))
    ways = [
        fc.load((X, Y, CLIENTS)),
        fc.load(X, y=Y, clients=CLIENTS.tolist()),
        fc.load((torch.tensor(X), torch.tensor(Y)), clients=pd.Series(CLIENTS)),
        fc.load((pd.DataFrame(X), pd.Series(Y), CLIENTS)),
        fc.load(Pairs(), clients=CLIENTS),
    ]
    assert {fingerprint_of(way) for way in ways} == {fingerprint_of(stored)}
    assert (
        len({fingerprint_of(fc.load(other)) for other in ((X, Y), (X, Y[::-1]), (X, Y, CLIENTS[::-1]))}) == 3
    )
    federation = fc.federate((X, Y, CLIENTS))  # the data's own clients
    assert federation.clients == ("site 0", "site 1", "site 2", "site 3", "site 4")
    assert federation.fingerprint() == fc.federate(stored, fc.partitioner("natural")).fingerprint()


def test_what_is_given_is_copied():
    own, ids = X.copy(), CLIENTS.copy()
    dataset = fc.load((own, Y, ids))
    own[:], ids[:] = 0, "nobody"
    assert dataset.x.numpy() == pytest.approx(X.astype(np.float32))
    assert dataset.owner is not None
    assert dataset.owner.tolist() == CLIENTS.tolist()


def test_a_frame_is_read_as_the_same_table_in_a_file(tmp_path: Path):
    words = ["red" if row % 2 else None for row in range(30)]
    frame = pd.DataFrame(X, columns=list("abcd")).assign(
        colour=words, code=pd.array([1, None] * 15, dtype="Int64"), outcome=Y, site=CLIENTS
    )
    frame.to_csv(tmp_path / "table.csv", index=False)
    options = {"label": "outcome", "client": "site", "missing": "mean", "categorical": ["code"]}
    stored = fc.load("table", path=str(tmp_path / "table.csv"), **options)
    for table in (frame, pl.read_csv(tmp_path / "table.csv")):
        assert fingerprint_of(fc.load(table, **options)) == fingerprint_of(stored)
    halves = fc.load(frame[:20], test=frame[20:], **options)
    assert halves.test_x is not None
    assert (len(halves.x), len(halves.test_x)) == (20, 10)


def test_pictures_have_their_channels_first():
    from PIL import Image

    pixels = RNG.integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
    pictures = [(Image.fromarray(each), place % 2) for place, each in enumerate(pixels)]
    dataset = fc.load(torch.utils.data.Subset(pictures, range(6)))  # type: ignore[arg-type]
    assert dataset.shape == (3, 5, 4)
    assert dataset.x.numpy() == pytest.approx(pixels.transpose(0, 3, 1, 2) / 255)


class Odd(Pairs):
    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(4 + place // 2), 0


@pytest.mark.parametrize(
    ("data", "options", "words"),
    [
        (None, {}, "NoneType cannot be dealt to clients: data are arrays"),
        ((X,), {}, r"a tuple of 1 is no \(X, y\)"),
        (X, {}, "have no labels"),
        ((X, Y[:3]), {}, "30 examples but 3 labels"),
        ((X, Y, [None] * 30), {}, "some client ids are missing"),
        ((X, Y, CLIENTS), {"clients": CLIENTS}, "given twice"),
        ((X, Y), {"label": "y"}, "no 'label': leave it out"),
        ([[1.0, 2.0], [1.0]], {"y": [0, 1]}, "some rows are longer"),
        (pd.DataFrame(X), {}, "label='...'"),
        (pd.DataFrame({"a": [1, 2], "y": [0, 1]}), {"label": "why"}, "no column 'why'.*known: a, y"),
        (pd.DataFrame(), {"label": "y"}, "holds no rows"),
        (pd.DataFrame(X), {"label": "0", "path": "x.csv"}, "'path' is about files"),
        (Odd(), {}, r"item 2 of the Dataset has shape \(5,\) and item 0 \(4,\)"),
        (torch.utils.data.ChainDataset([]), {}, "ChainDataset cannot be dealt"),
        (range(9), {}, r"item 0 of the Dataset is a int, not \(example, label\)"),
        (fc.load((X, Y)), {"clients": CLIENTS}, "is complete: leave clients out"),
    ],
)
def test_what_is_no_data_is_told_in_a_sentence(data, options, words):
    with pytest.raises(fc.UserError, match=words):
        fc.load(data, **options)
