"""PSI beyond labels: how far clients' attributes and sizes lie from the federation's.

An attribute is cut into a few bins, quantiles of all samples together, and a client's counts in these bins
are compared with everybody's. Each client therefore reveals, for each attribute, how many of its samples lie
in each bin: more than label counts, far less than the samples. The bounds of the bins are common knowledge.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.stats.label_distances import Array, psi_terms

BINS = 4


class Attribute(NamedTuple):
    """One column of the data, a number for each sample; categories are numbered."""

    name: str
    values: NDArray[Any]


def attributes(x: NDArray[Any], columns: Mapping[str, int] | None = None) -> list[Attribute]:
    """The columns of ``x [n, F]``; with the width of each named column, one-hot categories become one."""
    if columns is None or sum(columns.values()) != x.shape[1]:
        return [Attribute(f"x{number}", x[:, number]) for number in range(x.shape[1])]
    found, start = [], 0
    for name, width in columns.items():
        block = x[:, start : start + width]
        start += width
        if width == 1:
            found.append(Attribute(name, block[:, 0]))
        elif np.isin(block, (0, 1)).all() and (block.sum(axis=1) <= 1).all():
            found.append(Attribute(name, np.where(block.any(axis=1), block.argmax(axis=1), width)))
        else:
            found += [Attribute(f"{name}[{number}]", block[:, number]) for number in range(width)]
    return found


def bin_counts(values: NDArray[Any], client: NDArray[np.int64], clients: int, bins: int) -> Array:
    """K x bins: a whole-numbered column keeps its values as bins if they are few, else quantiles bound them.

    A value that fills several quantiles alone is one bin, so there may be fewer than ``bins``.
    """
    distinct = np.unique(values)
    codes = np.issubdtype(values.dtype, np.integer) or len(distinct) <= bins
    bounds = distinct[:-1] if codes else np.unique(np.quantile(values, np.arange(1, bins) / bins))
    cell = np.searchsorted(bounds, values, side="left")  # a bound belongs to the bin below it
    width = len(bounds) + 1
    return np.bincount(client * width + cell, minlength=clients * width).reshape(clients, width).astype(float)


def feature_psi(tables: ArrayLike, signed: bool = False) -> Array:
    """K x F: PSI of each client's bins against everybody's, from counts ``[K, F, bins]``.

    ``signed`` makes it negative where a client's samples lie lower, on average over bins, than the others'.
    """
    counts = np.asarray(tables, dtype=np.float64)
    psi = np.stack([psi_terms(counts[:, f], "laplace").sum(axis=1) for f in range(counts.shape[1])], axis=1)
    if not signed:
        return psi
    position = counts @ np.arange(counts.shape[2])
    mean = position / np.maximum(counts.sum(axis=2), np.finfo(float).tiny)
    return psi * np.sign(mean - position.sum(axis=0) / np.maximum(counts.sum(axis=(0, 2)), 1e-300))


def quantity_terms(size: ArrayLike) -> Array:
    """PSI of the clients' shares of all samples against even shares, a term each: (1/K - s) ln(1 / (K s)).

    Clients without samples have none, and are not counted in K.
    """
    sizes = np.asarray(size, dtype=np.float64)
    held = sizes > 0
    even, share = 1 / max(held.sum(), 1), sizes[held] / max(sizes.sum(), 1)
    terms = np.full(len(sizes), np.nan)
    terms[held] = (even - share) * np.log(even / share)
    return terms
