"""What all ways of grouping share: how groups are numbered, and scikit-learn kept reproducible."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.util.keyed import key_seed

Labels = NDArray[np.int64]
Metric = Literal["euclidean", "precomputed"]


def relabel(labels: ArrayLike) -> Labels:
    """Groups numbered by first appearance; every noise point (-1) becomes a group of its own."""
    names = np.array(labels, dtype=np.int64)
    noise = np.flatnonzero(names < 0)
    names[noise] = names.max(initial=0) + 1 + np.arange(noise.size)
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def by_mean(labels: Labels, values: NDArray[np.float64], tie: Labels) -> list[list[int]]:
    """The positions of each group's members in their given order; the group of highest mean value first, of
    equals that of the lowest ``tie``."""
    _, own, size = np.unique(labels, return_inverse=True, return_counts=True)
    mean = np.bincount(own, weights=values) / size
    first = np.full(len(size), len(tie) and tie.max())
    np.minimum.at(first, own, tie)
    order = np.lexsort((first, -mean.round(12)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    positions = np.argsort(rank[own], kind="stable")
    return [part.tolist() for part in np.split(positions, np.cumsum(size[order])[:-1])] if len(own) else []


def join_largest(labels: Labels, rows: Labels, total: int) -> Labels:
    """Labels for ``total`` clients of which only ``rows`` were grouped; the others join the largest group."""
    largest = int(np.bincount(labels).argmax()) if len(labels) else 0
    everyone = np.full(total, largest, dtype=np.int64)
    everyone[rows] = labels
    return everyone


def state(seed: int, purpose: str) -> int:
    return key_seed(seed, purpose) % 2**32  # scikit-learn takes 32 bits


@contextmanager
def reproducible() -> Iterator[None]:
    """One thread, and no warnings about inputs whose answer we have decided on."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.filterwarnings("ignore", module="sklearn")
        yield
