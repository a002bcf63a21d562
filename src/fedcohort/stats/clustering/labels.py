"""What all ways of grouping share: how groups are numbered, and scikit-learn kept reproducible."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.util.keyed import key_seed, numpy_generator

PIECE = 1024  # rows compared at a time

Labels = NDArray[np.int64]
Metric = Literal["euclidean", "precomputed"]


def relabel(labels: ArrayLike) -> Labels:
    """Groups numbered by first appearance; every noise point (-1) becomes a group of its own."""
    names = np.array(labels, dtype=np.int64)
    noise = np.flatnonzero(names < 0)
    names[noise] = names.max(initial=0) + 1 + np.arange(noise.size)
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def some_rows(total: int, most: int, seed: int, purpose: str, what: str = "") -> Labels:
    """Row numbers in ascending order: all, or of more than ``most`` that many, always the same ones. That
    ``what``, if it is named, groups these and no others is told as a warning."""
    if total <= most:
        return np.arange(total)
    if what:
        warnings.warn(
            f"{what} groups a fixed sample of {most:,} of {total:,} clients, and the others join the nearest",
            RuntimeWarning,
            stacklevel=3,
        )
    return np.sort(numpy_generator(seed, purpose).choice(total, most, replace=False))


def nearest(table: NDArray[np.float64], targets: NDArray[np.float64]) -> tuple[Labels, NDArray[np.float64]]:
    """The nearest row of ``targets`` for each row of ``table``, and how far it is."""
    centre = targets.mean(axis=0)  # differences of small numbers lose less
    shifted = targets - centre
    own, doubled = (shifted**2).sum(axis=1), -2 * shifted
    found, distance = np.empty(len(table), dtype=np.int64), np.empty(len(table))
    for start in range(0, len(table), PIECE):
        rows = table[start : start + PIECE] - centre
        squared = rows @ doubled.T
        squared += own
        best = squared.argmin(axis=1)
        found[start : start + PIECE] = best
        distance[start : start + PIECE] = np.sqrt(((rows - shifted[best]) ** 2).sum(axis=1))
    return found, distance


def by_mean(labels: Labels, values: NDArray[np.float64], tie: Labels, most: int) -> list[list[int]]:
    """The positions of each group's members in their given order; the group of highest mean value first, of
    equals that of the lowest ``tie``. Of more than ``most`` groups, the first."""
    _, own, size = np.unique(labels, return_inverse=True, return_counts=True)
    mean = np.bincount(own, weights=values) / size
    first = np.full(len(size), len(tie) and tie.max())
    np.minimum.at(first, own, tie)
    order = np.lexsort((first, -mean.round(12)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    positions = np.argsort(rank[own], kind="stable")
    ends = np.cumsum(size[order])[:most]
    return [part.tolist() for part in np.split(positions, ends)[: len(ends)]]


def join_largest(labels: Labels, rows: Labels, total: int) -> Labels:
    """Labels for ``total`` clients of which only ``rows`` were grouped; the others join the largest group."""
    largest = int(np.bincount(labels).argmax()) if len(labels) else 0
    everyone = np.full(total, largest, dtype=np.int64)
    everyone[rows] = labels
    return everyone


def has_company(labels: Labels) -> NDArray[np.bool_]:
    """Who is not alone in its group; everybody, where all are."""
    together = np.bincount(labels)[labels] > 1
    return together if together.any() else ~together


def state(seed: int, purpose: str) -> int:
    return key_seed(seed, purpose) % 2**32  # scikit-learn takes 32 bits


@contextmanager
def reproducible() -> Iterator[None]:
    """One thread, and no warnings about inputs whose answer we have decided on."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.filterwarnings("ignore", module="sklearn")
        yield
