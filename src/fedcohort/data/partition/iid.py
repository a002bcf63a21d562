"""Every client draws from the same distribution: the reference without skew."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.util.settings import at_least


@register
@dataclass(frozen=True)
class IID(Partitioner):
    """Shuffles the examples and deals them in equal parts."""

    clients: Annotated[int, at_least(1)] = 10

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        return Partition(np.array_split(self.generator(seed).permutation(len(labels)), self.clients))
