"""How far clients' attributes and sizes lie from the federation's, attribute by attribute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcohort.data.federation import Federation
from fedcohort.stats.attribute_psi import BINS, attributes, bin_counts, quantity_terms
from fedcohort.stats.label_distances import Array, psi_terms
from fedcohort.util.moved import names_in

__getattr__ = names_in("fedcohort.stats.attribute_psi", __name__)
HOW_TO_READ = (
    "PSI of each client's binned values, ½ pseudo-count; 0.25 and more is a large shift. Empty cells count "
    "as one value: where many are empty, clients may keep other records rather than see other people."
)


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


def most(values: Array, count: int) -> Sequence[int]:
    """Positions of the largest values, largest first; NaN last."""
    return np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:count].tolist()


def _plain(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
