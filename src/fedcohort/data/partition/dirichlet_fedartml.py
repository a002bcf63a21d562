"""The Dirichlet partition exactly as FedArtML draws it, seed by seed.

Jimenez-Gutierrez et al.: FedArtML (IEEE Access 2024), version 0.1.34. For replicating published partitions;
use ``dirichlet`` for new work.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import rows_by_client
from fedcohort.data.partition.dirichlet import cut, refuse_impossible, too_skewed
from fedcohort.util.settings import above, at_least, between

SEED_STEP = 100  # FedArtML seeds NumPy anew for each class, this far apart, also across retries


@register
@dataclass(frozen=True)
class DirichletFedArtML(Partitioner):
    """``dirichlet`` with NumPy's legacy generator, seeded for each class."""

    clients: Annotated[int, at_least(1)] = 10
    alpha: Annotated[float, above(0)] = 0.5
    min_size: Annotated[int, at_least(1)] = 10
    max_tries: Annotated[int, between(1, 10_000)] = 200

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        refuse_impossible(len(labels), self.clients, self.min_size)
        classes = int(labels.max()) + 1
        for retry in range(self.max_tries):
            client = self._draw(labels, seed + retry * classes * SEED_STEP)
            if np.bincount(client, minlength=self.clients).min() >= self.min_size:
                return Partition(rows_by_client(client, self.clients), provenance={"retries": retry})
        raise too_skewed(self.clients, self.alpha, self.min_size, self.max_tries)

    def _draw(self, labels: np.ndarray, seed: int) -> np.ndarray:
        client = np.empty(len(labels), dtype=np.int64)
        sizes = np.zeros(self.clients, dtype=np.int64)
        for label in range(int(labels.max()) + 1):
            legacy = np.random.RandomState((seed + label * SEED_STEP) % 2**32)
            rows = np.flatnonzero(labels == label)
            legacy.shuffle(rows)
            share = legacy.dirichlet(np.full(self.clients, self.alpha))
            if np.isnan(share).any():  # of a tiny alpha every draw was rounded to zero
                raise too_skewed(self.clients, self.alpha, self.min_size, self.max_tries)
            counts = cut(share, sizes < len(labels) / self.clients, len(rows))
            client[rows] = np.repeat(np.arange(self.clients), counts)
            sizes += counts
        return client
