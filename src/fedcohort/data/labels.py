"""Labels of any kind into class numbers."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedcohort.util.errors import UserError
from fedcohort.util.words import counted

LARGEST = 2**53  # beyond it floats skip whole numbers
MANY = 1000  # more classes than this: the column is something else
FEW = 50  # more different numbers than this, or numbers with decimals: amounts rather than classes


def encode_labels(
    train: np.ndarray,
    test: np.ndarray | None = None,
    names: tuple[str, ...] | None = None,
    every: tuple[str, ...] | None = None,
    fractions: bool = False,
) -> tuple[Tensor, Tensor | None, tuple[str, ...]]:
    """Class numbers of both parts and the names: the sorted values, ``every`` value there is, or ``names``
    for labels 0 to C-1. Numbers with ``fractions`` are classes only if it is said."""
    for part in (train, test):
        if part is not None and (part.ndim != 1 or part.dtype.kind not in "biufUS"):
            raise UserError(
                f"labels are of type {part.dtype} and shape {part.shape}: give one label for each example"
            )
    both = train if test is None else np.concatenate([train, test])
    if both.dtype.kind == "S":
        both = np.char.decode(both, "utf-8", "replace")
    if both.dtype.kind == "f":
        if not np.isfinite(both).all():
            raise UserError(
                f"labels are missing in {counted((~np.isfinite(both)).sum(), 'row')}: remove such rows first"
            )
        whole = not (both % 1).any()
        if not (whole or fractions):
            raise UserError(
                "labels hold fractions, but classes are whole numbers or words: check the label column"
            )
        if np.abs(both).max(initial=0) > LARGEST:
            raise UserError(f"labels are as large as {np.abs(both).max():g}: check the label column")
        both = both.astype(np.int64) if whole else both
    if names is not None:
        codes = both.astype(np.int64)
    else:
        values, codes = np.unique(both, return_inverse=True)
        if len(values) > MANY:
            raise UserError(
                f"the labels have {len(values)} different values, hardly classes: check the label column"
            )
        names = tuple(str(value) for value in values)
        if every is not None:
            if unknown := [name for name in names if name not in every]:
                raise UserError(f"label '{unknown[0]}' is not among 'classes' ({', '.join(every)}): add it")
            codes, names = np.array([every.index(name) for name in names])[codes], every
    y = torch.from_numpy(np.ascontiguousarray(codes, dtype=np.int64))
    return y[: len(train)], None if test is None else y[len(train) :], names


def refuse_amounts(labels: np.ndarray, name: str, cure: str) -> None:
    """Of a label column that holds amounts rather than classes."""
    if labels.dtype.kind != "f" or not np.isfinite(labels).all():
        return
    values = np.unique(labels)
    if (values % 1).any():
        raise UserError(f"label '{name}' holds numbers with decimals, so it looks like an amount: {cure}")
    if len(values) > FEW:
        raise UserError(f"label '{name}' has {len(values):,} values, so it looks like an amount: {cure}")


def cut_points(labels: np.ndarray, bins: int) -> tuple[float, ...]:
    """Values between ``bins`` classes of about the same size; fewer where one value fills several classes."""
    points = np.unique(np.quantile(labels, np.arange(1, bins) / bins, method="inverted_cdf"))
    return tuple(points[points < labels.max()].tolist())


def cut(labels: np.ndarray, points: Sequence[float]) -> np.ndarray:
    """The class of each amount; a point belongs to the class below it."""
    return np.searchsorted(points, labels, side="left")


def cut_names(points: Sequence[float]) -> tuple[str, ...]:
    """Of the classes between these points."""
    told = [f"{point:.12g}" for point in points]
    between = [f"above {low} to {high}" for low, high in pairwise(told)]
    return (f"at most {told[0]}", *between, f"above {told[-1]}")
