"""FedArtML's measures of label skew, of every table it is given, and its Dirichlet partition.

Worked around: FedArtML's ``__init__`` imports plotting libraries; its modules are imported past it.
"""

import importlib.util
import sys
from types import ModuleType
from typing import Any

import numpy as np

PACKAGE = ModuleType("fedartml")
SPEC = importlib.util.find_spec("fedartml")
PACKAGE.__path__ = list(SPEC.submodule_search_locations or []) if SPEC else []
sys.modules["fedartml"] = PACKAGE

from fedartml.fl_split_as_federated_data import SplitAsFederatedData
from fedartml.function_base import earth_movers_distance, hellinger_distance, jensen_shannon_distance

from crosschecks.problem import read, report


def measure(counts: np.ndarray) -> dict[str, float]:
    shares = (counts / counts.sum(axis=1, keepdims=True)).tolist()
    return {
        "Hellinger": float(hellinger_distance(shares)),
        "Jensen-Shannon": float(jensen_shannon_distance(shares)),
        "EMD": float(earth_movers_distance(shares)),
    }


def deal(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list[list[int]]:
    """The rows of each client, in ascending order."""
    _, _, rows, _ = SplitAsFederatedData.dirichlet_method(labels, clients, alpha, random_state=seed)
    return [sorted(own) for own in rows]


def main() -> None:
    tables = read()
    labels, clients, alpha, seed = (tables.pop(name) for name in ("labels", "clients", "alpha", "seed"))
    runs: dict[str, Any] = {name: measure(counts) for name, counts in tables.items()}
    runs["rows"] = deal(labels, int(clients), float(alpha), int(seed))
    report(runs, "fedartml")


if __name__ == "__main__":
    main()
