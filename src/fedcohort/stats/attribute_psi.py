"""PSI beyond labels: how far clients' attributes and sizes lie from the federation's.

An attribute is cut into a few bins, quantiles of all samples together, and a client's counts in these bins
are compared with everybody's. Each client therefore reveals, for each attribute, how many of its samples lie
in each bin: more than label counts, far less than the samples. The bounds of the bins are common knowledge.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.data.federation import Federation
from fedcohort.stats.label_distances import Array, psi_terms

BINS = 4
HOW_TO_READ = (
    "PSI of each client's binned values, ½ pseudo-count; 0.25 and more is a large shift. Empty cells count "
    "as one value: where many are empty, clients may keep other records rather than see other people."
)


class Attribute(NamedTuple):
    """One column of the data, a number for each sample; categories are numbered."""

    name: str
    values: NDArray[Any]


@dataclass(frozen=True, eq=False)
class FeatureSkew:
    """The result of :func:`diagnose_features`; NaN marks clients without samples."""

    features: tuple[str, ...]
    client_names: tuple[str, ...]
    psi: Array  # K x F: of each client's bins against the federation's
    wpsi: Array  # F: its mean over clients, weighted by their samples
    chance: Array  # F: what that mean is about when clients differ by luck alone
    quantity: Array  # K: see quantity_terms
    empty: Array  # F: share of the table's cells that are empty; they count as the mean, or as a category

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; what is undefined is None."""
        return {
            "names": list(self.features),
            "wpsi": _plain(self.wpsi),
            "wpsi_by_chance": _plain(self.chance),
            "psi": [_plain(row) for row in self.psi],
            "empty": _plain(self.empty),
            "quantity_psi": float(np.nansum(self.quantity)),
            "quantity_psi_terms": _plain(self.quantity),
        }


def diagnose_features(federation: Federation, bins: int = BINS) -> FeatureSkew:
    """Compares the training samples of a federation attribute by attribute, and the clients' sizes."""
    train = federation.train
    x = train.x[train.index].flatten(1).numpy()
    story = federation.provenance.get("data", {})
    columns = attributes(x, story.get("columns"))
    size = train.sizes.numpy().astype(np.float64)
    held = max(int((size > 0).sum()), 1)
    psi, chance = np.full((len(size), len(columns)), np.nan), np.zeros(len(columns))
    for position, column in enumerate(columns):
        table = bin_counts(column.values, train.client.numpy(), len(size), bins)
        psi[:, position] = psi_terms(table, "laplace").sum(axis=1)
        chance[position] = (table.any(axis=0).sum() - 1) * (held - 1) / size.sum()
    wpsi = size @ np.nan_to_num(psi) / size.sum()
    names = tuple(column.name for column in columns)
    empty = np.array([story.get("empty_shares", {}).get(name, 0.0) for name in names])
    return FeatureSkew(names, federation.clients, psi, wpsi, chance, quantity_terms(size), empty)


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


def most(values: Array, count: int) -> Sequence[int]:
    """Positions of the largest values, largest first; NaN last."""
    return np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:count].tolist()


def _plain(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
