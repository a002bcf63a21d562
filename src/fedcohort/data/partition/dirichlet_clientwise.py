"""Label skew by a Dirichlet draw per client over the classes; all clients have the same size.

Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution (2019),
https://arxiv.org/abs/1909.06335. FedGWC (ICML 2025) reads alpha this way: as the total mass, so that
alpha=0.5 is far more skewed here than in ``dirichlet``, where each client has mass alpha in each class.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import deal_counts, equal_sizes
from fedcohort.data.partition._stock import Stock
from fedcohort.util.settings import at_least


@register
@dataclass(frozen=True)
class DirichletClientwise(Partitioner):
    """Client k draws its class mixture from Dir(alpha * global mixture), then N/K examples from it."""

    drops: ClassVar[bool] = True  # with alpha 0, when a class runs out

    clients: Annotated[int, at_least(1)] = 10
    alpha: Annotated[float, at_least(0)] = 0.5  # 0: one class per client; 1000: nearly IID

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        rng = self.generator(seed)
        alphas = np.full(self.clients, self.alpha)
        return Partition(deal_clientwise(labels, alphas, rng))


def deal_clientwise(labels: np.ndarray, alphas: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Clients of equal size draw in turn from one pool, each with its own concentration."""
    stock, sizes = Stock(labels, rng), equal_sizes(len(labels), len(alphas))
    counts = [stock.draw(float(alpha), int(size)) for alpha, size in zip(alphas, sizes, strict=True)]
    return deal_counts(labels, np.stack(counts), rng)
