"""Groups of clients that differ in how skewed they are, as in FedGWC's experiments (ICML 2025).

All draw from one pool without replacement, the most homogeneous group first: no two clients share an example.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import apportion
from fedcohort.data.partition.dirichlet_clientwise import deal_clientwise
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least

Share = Annotated[float, at_least(0)]


@register
@dataclass(frozen=True)
class MixedAlpha(Partitioner):
    """Group g is ``shares[g]`` of the clients and draws with mass ``alphas[g]``; truth is the group."""

    drops: ClassVar[bool] = True  # single-class clients take no more than their class has

    clients: Annotated[int, at_least(1)] = 100
    shares: tuple[Share, ...] = (0.4, 0.3, 0.3)
    alphas: tuple[Share, ...] = (1000.0, 0.5, 0.0)  # total mass, as in dirichlet_clientwise

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        if len(self.shares) != len(self.alphas):
            raise UserError(
                f"{len(self.shares)} shares for {len(self.alphas)} alphas: give one of each for every group"
            )
        rng = self.generator(seed)
        group = assign_groups(self.shares, self.clients, rng)
        alphas = np.array(self.alphas)[group]
        first = np.argsort(-alphas, kind="stable")  # homogeneous clients draw while every class is there
        dealt = deal_clientwise(labels, alphas[first], rng)
        owners: list[np.ndarray] = [dealt[position] for position in np.argsort(first)]
        return Partition(owners, truth=group)


def assign_groups(shares: tuple[float, ...], clients: int, rng: np.random.Generator) -> np.ndarray:
    """The group of each client, in order of the groups; sizes follow ``shares`` by largest remainders."""
    if not shares or sum(shares) <= 0:
        raise UserError("'shares' must hold at least one number above 0")
    weights = np.rint(np.array(shares) / sum(shares) * 1_000_000).astype(np.int64)
    return np.repeat(np.arange(len(shares)), apportion(weights[None], np.array([clients]), rng)[0])
