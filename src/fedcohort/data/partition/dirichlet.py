"""Label skew by a Dirichlet draw per class over the clients.

Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (ICDE 2022), https://arxiv.org/abs/2102.02079
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import deal_counts
from fedcohort.util.errors import UserError
from fedcohort.util.settings import above, at_least, between


@register
@dataclass(frozen=True)
class Dirichlet(Partitioner):
    """Each class is cut between the clients by shares drawn from Dir(alpha); a full client takes no more."""

    clients: Annotated[int, at_least(1)] = 10
    alpha: Annotated[float, above(0)] = 0.5  # small: few classes per client; 100: nearly IID
    min_size: Annotated[int, at_least(1)] = 10  # draw again until every client holds this many
    max_tries: Annotated[int, between(1, 10_000)] = 200

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        refuse_impossible(len(labels), self.clients, self.min_size)
        rng, stock = self.generator(seed), np.bincount(labels)
        for retry in range(self.max_tries):
            counts = self._draw(stock, rng)
            if counts.sum(axis=1).min() >= self.min_size:
                return Partition(deal_counts(labels, counts, rng), provenance={"retries": retry})
        raise too_skewed(self.clients, self.alpha, self.min_size, self.max_tries)

    def _draw(self, stock: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        counts = np.zeros((self.clients, len(stock)), dtype=np.int64)
        for label, size in enumerate(stock):
            share = rng.dirichlet(np.full(self.clients, self.alpha))
            counts[:, label] = cut(share, counts.sum(axis=1) < stock.sum() / self.clients, int(size))
        return counts


def cut(share: np.ndarray, open_: np.ndarray, size: int) -> np.ndarray:
    """How many of ``size`` examples each client gets; clients that are not ``open_`` get none."""
    kept = share * open_
    if kept.sum() == 0:  # every share went to full clients
        kept = share
    ends = (np.cumsum(kept / kept.sum()) * size).astype(np.int64)
    ends[-1] = size
    return np.diff(ends, prepend=0)


def refuse_impossible(examples: int, clients: int, min_size: int) -> None:
    if clients * min_size > examples:
        raise UserError(
            f"{clients} clients with at least {min_size} examples each need {clients * min_size}, "
            f"but there are {examples}: lower 'clients' or 'min_size'"
        )


def too_skewed(clients: int, alpha: float, min_size: int, tries: int) -> UserError:
    return UserError(
        f"no Dirichlet draw with alpha={alpha:g} gave each of {clients} clients {min_size} examples "
        f"in {tries} tries: raise 'alpha', or lower 'clients' or 'min_size'"
    )
