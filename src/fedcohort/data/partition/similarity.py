"""A share of the examples dealt at random, the rest dealt class after class.

Hsieh et al. (ICML 2020) and Karimireddy et al. (ICML 2020) made this protocol common; Clust-PSI-PFL uses it.
"""

import random
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.util.settings import at_least, between


@register
@dataclass(frozen=True)
class Similarity(Partitioner):
    """``similarity`` 1 is IID; 0 gives each client a run of the examples sorted by class."""

    drops: ClassVar[bool] = True

    clients: Annotated[int, at_least(1)] = 10
    similarity: Annotated[float, between(0, 1)] = 0.5
    drop_remainder: bool = False  # equal sizes at the price of a few examples
    legacy: bool = False  # shuffle as the Clust-PSI-PFL authors do; drops remainders

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        rng = self.generator(seed)
        order = _python_shuffle(len(labels), seed) if self.legacy else rng.permutation(len(labels))
        shared = round(self.similarity * len(labels))
        sorted_ = order[shared:][np.argsort(labels[order[shared:]], kind="stable")]
        parts = [self._blocks(order[:shared]), self._blocks(sorted_)]
        owners = [np.concatenate(pair) for pair in zip(*parts, strict=True)]
        if not self.legacy:  # else a client's number would tell its classes
            owners = [owners[k] for k in rng.permutation(self.clients)]
        return Partition(owners)

    def _blocks(self, rows: np.ndarray) -> list[np.ndarray]:
        if self.drop_remainder or self.legacy:
            return list(rows[: len(rows) // self.clients * self.clients].reshape(self.clients, -1))
        return np.array_split(rows, self.clients)


def _python_shuffle(count: int, seed: int) -> np.ndarray:
    rows = list(range(count))
    random.Random(seed).shuffle(rows)  # noqa: S311  # the paper's draw, no secret
    return np.array(rows)
