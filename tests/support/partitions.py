"""Deals labels to clients in one call."""

from typing import Any

import numpy as np

from fedcohort.data.partition import Partition, partitioner


def split_clients(
    labels: np.ndarray, name: str, seed: int = 0, owner: np.ndarray | None = None, **parameters: Any
) -> Partition:
    return partitioner(name, **parameters)(labels, seed, owner)
