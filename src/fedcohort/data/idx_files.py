"""The IDX format of MNIST and its relatives, plain or gzipped."""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedcohort.data.dataset import Dataset
from fedcohort.data.images import read_images
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import Places, Remote
from fedcohort.data.unpack import read_bytes
from fedcohort.util.errors import UserError

TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
MOST_AXES = 4
FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def read_idx(path: Path) -> np.ndarray:
    """The array in an IDX file."""
    raw = read_bytes(path)
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] not in TYPES or raw[3] > MOST_AXES:
        raise UserError(f"{path} is not an IDX file: give the folder with the original files")
    kind, dims = np.dtype(TYPES[raw[2]]), raw[3]
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims))
    start = 4 + 4 * dims
    if 0 in shape or len(raw) - start != math.prod(shape) * kind.itemsize:
        raise UserError(f"{path} is cut short or damaged: fetch it again")
    return np.frombuffer(raw, kind, offset=start).reshape(shape)


def spellings(file: str) -> tuple[str, ...]:
    """The names under which one file is found: gzipped, plain, and with the dots of older copies."""
    plain = file.removesuffix(".gz")
    dotted = plain.replace("-idx", ".idx")
    return file, plain, f"{dotted}.gz", dotted


def load_idx_folder(
    where: Places,
    names: tuple[str, ...],
    remotes: Mapping[str, Remote],
    normalise: bool,
    classes: tuple[str, ...] | None,
) -> Dataset:
    """The usual four files as a data set; without the two test files where ``remotes`` has none either."""
    arrays: list[np.ndarray | None] = []
    for file in FILES:
        path = where.find(names, spellings(file))
        if path is None and file in remotes:
            path = where.fetch(names, spellings(file), remotes[file])
        if path is None and file.startswith("train"):
            raise UserError(f"{file} is missing: put it into {where.given or names[0]}")
        arrays.append(None if path is None else read_idx(path))
    x, labels, test, test_labels = arrays
    assert x is not None  # noqa: S101  # else it was said above
    assert labels is not None  # noqa: S101
    if (test is None) != (test_labels is None):
        raise UserError("the folder has only one of the two test files: add the other one, or remove it")
    train_x, test_x, numbers = read_images(
        _with_channel(x), None if test is None else _with_channel(test), normalise
    )
    y, test_y, found = encode_labels(labels, test_labels, classes)
    story = {"normalised": normalise}
    return Dataset(train_x, y, found, test_x, test_y, provenance=story, numbers=numbers)


def _with_channel(images: np.ndarray) -> np.ndarray:
    return images[:, None] if images.ndim == 3 else images
