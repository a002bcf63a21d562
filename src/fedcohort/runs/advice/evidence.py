"""What our own runs found: the federations of a grid, what was seen of each, and how methods did there.

``evidence.csv`` has a row for each federation: the names of what it was made of, its features, FedAvg's
accuracy, and for each method how much more accurate it was (``gain NAME``) and the standard error of that
(``error NAME``), over seeds. ``evidence.toml`` says how the runs were made. ``python -m studies.advice_grid``
writes both.
"""

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.stats import label_distances
from fedcohort.stats.label_distances import Array
from fedcohort.util.errors import UserError

FEATURES = ("clients", "classes", "samples", "cohort", "share", "label_emd", "emd_share", "held", "gini")
NAMES = ("data", "skew", "clients dealt", "cohort asked", "epsilon")  # of what a federation was made
BASE = "fedavg"  # what gains are over
GAIN, ERROR = "gain ", "error "
EXACT = ""  # in place of an epsilon


def features_of(counts: ArrayLike, cohort: int) -> dict[str, float]:
    """What is known of a federation from label counts and the number of clients that train a round."""
    table = label_distances.counts_array(counts)
    held = table[table.any(axis=1)]
    if len(held) < 2:
        raise UserError("fewer than two clients hold any sample: advice is about federations")
    pool, (clients, classes) = label_distances.pooled(held), (len(held), held.any(axis=0).sum())
    moved, alone = label_distances.label_emd(held), 2 * (1 - (pool**2).sum())
    return {
        "clients": float(clients),
        "classes": float(classes),
        "samples": float(held.sum() / clients),  # of a client
        "cohort": float(cohort),
        "share": cohort / clients,
        "label_emd": moved,
        "emd_share": moved / alone if alone > 0 else 0.0,  # 0: all alike, 1: as if each client held one class
        "held": float(((held > 0).sum(axis=1).mean() - 1) / max(classes - 1, 1)),  # 0: one class, 1: all
        "gini": label_distances.size_imbalance(held).gini,
    }


@dataclass(frozen=True, eq=False)
class Measured:
    """The table, a row of every array for each federation."""

    names: tuple[Mapping[str, str], ...]  # see NAMES
    features: Array  # [F, features]
    epsilon: Array  # [F] of noised label counts; NaN: exact
    accuracy: Array  # [F] of FedAvg
    gain: Mapping[str, Array]  # [F] of each method; NaN: unknown
    error: Mapping[str, Array]
    about: Mapping[str, Any]  # how it was made

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, str]], about: Mapping[str, Any]) -> "Measured":
        def column(name: str) -> Array:
            return np.array([float(row[name] or "nan") for row in rows])

        methods = [name.removeprefix(GAIN) for name in rows[0] if name.startswith(GAIN)]
        return cls(
            tuple({name: row[name] for name in NAMES} for row in rows),
            np.stack([column(name) for name in FEATURES], axis=1),
            column("epsilon"),
            column(BASE),
            {method: column(GAIN + method) for method in methods},
            {method: column(ERROR + method) for method in methods},
            about,
        )

    def where(self, kept: Array) -> "Measured":
        """Of some federations only."""
        chosen = np.flatnonzero(kept)
        return Measured(
            tuple(self.names[row] for row in chosen.tolist()),
            self.features[chosen],
            self.epsilon[chosen],
            self.accuracy[chosen],
            {method: values[chosen] for method, values in self.gain.items()},
            {method: values[chosen] for method, values in self.error.items()},
            self.about,
        )

    def __len__(self) -> int:
        return len(self.names)


@cache
def shipped() -> Measured:
    """The table that comes with the package."""
    folder = files("fedcohort.runs.advice")
    rows = list(csv.DictReader((folder / "evidence.csv").read_text(encoding="utf-8").splitlines()))
    return Measured.of(rows, tomllib.loads((folder / "evidence.toml").read_text(encoding="utf-8")))
