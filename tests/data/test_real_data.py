"""The real files, where they are at hand."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from fedcohort.data import federate, load
from fedcohort.data.partition import partitioner
from fedcohort.data.sheets import MD5, expand_batch


def test_digits_need_no_files() -> None:
    data = load("digits")
    assert data.x.shape == (1797, 1, 8, 8)
    assert (data.x.min(), data.x.max()) == (0, 1)


def test_fashion_mnist(real_data: Path) -> None:
    """Published statistics: 6,000 and 1,000 images per class, mean 0.2860, deviation 0.3530."""
    data = load("fashion_mnist", root=real_data)
    assert data.y.bincount().tolist() == [6000] * 10
    assert data.test_y is not None
    assert data.test_y.bincount().tolist() == [1000] * 10
    federation = federate(data, partitioner("dirichlet", clients=100, alpha=0.5))
    assert federation.scale is not None
    assert [value.item() for value in federation.scale[:2]] == pytest.approx([0.2860, 0.3530], abs=5e-5)
    assert len(federation.test.index) == 10_000
    train, test = federation.counts.double(), federation.test.counts(10).double()
    gap = (train / train.sum(1, keepdim=True) - test / test.sum(1, keepdim=True)).abs().sum(1)
    assert gap.mean() < 0.1  # each client's test set mirrors its training set


def test_mnist_writers(real_data: Path) -> None:
    data = load("mnist", root=real_data, owner="writer")
    assert data.owner is not None
    assert data.test_owner is not None
    assert (len(np.unique(data.owner)), len(np.unique(data.test_owner))) == (539, 297)


def test_a_cifar10_sheet_holds_the_official_batch(real_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    sheet = real_data / "cifar10" / "test_batch.webp"
    if not sheet.is_file():
        pytest.skip("CIFAR-10 is here in another layout")
    with np.load(sheet.with_name("labels.npz")) as labels:
        expand_batch(sheet, labels["test"], tmp_path / "test_batch.bin")
    digest = hashlib.md5((tmp_path / "test_batch.bin").read_bytes(), usedforsecurity=False)
    assert digest.hexdigest() == MD5["test_batch.bin"]


def test_four_hospitals(real_data: Path) -> None:
    """UCI heart disease: 303, 294, 123 and 200 patients; 509 of 920 are ill."""
    data = load(
        "table",
        root=real_data,
        path="heart_disease_uci/*.data",
        header=False,
        label="column_14",
        threshold=0,
        client="@file",
        missing="mean",
    )
    federation = federate(data, partitioner("natural"))
    assert (federation.train.sizes + federation.test.sizes).tolist() == [303, 294, 123, 200]
    assert int(data.y.sum()) == 509
