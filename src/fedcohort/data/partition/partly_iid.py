"""Some clients see all classes, the others only a few; sizes vary.

After the experiments of CAFA: 20 clients, a quarter or a half of them IID, the others with 20-40 % of the
classes. The paper leaves the details open; here no example is ever given twice.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import apportion, deal_counts
from fedcohort.data.partition._stock import Stock
from fedcohort.util.errors import UserError
from fedcohort.util.settings import above, at_least, between

SIZES = (10, 100)  # relative sizes are drawn evenly between these


@register
@dataclass(frozen=True)
class PartlyIID(Partitioner):
    """IID clients draw first, in the global class proportions; each other client draws from its few classes.

    The clients' ``truth`` is 1 for IID clients and 0 for the others.
    """

    drops: ClassVar[bool] = True

    clients: Annotated[int, at_least(1)] = 20
    iid: Annotated[float, between(0, 1)] = 0.25  # share of IID clients
    low: Annotated[float, between(0, 1)] = 0.2  # share of the classes that another client sees, at least
    high: Annotated[float, between(0, 1)] = 0.4  # and at most
    alpha: Annotated[float, above(0)] = 0.5  # Dirichlet mixture of its classes
    leftovers: Literal["drop", "deal"] = "drop"  # "deal": to the owners of the class

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        if self.low > self.high:
            raise UserError(
                f"'low' is {self.low:g} and 'high' is {self.high:g}: give a low that is not above high"
            )
        rng, total = self.generator(seed), int(labels.max()) + 1
        sizes = self._sizes(len(labels), rng)
        stock, even = Stock(labels, rng), round(self.iid * self.clients)
        counts = np.zeros((self.clients, total), dtype=np.int64)
        counts[:even] = _stratified(stock, sizes[:even], rng)
        holds = np.ones((self.clients, total), dtype=bool)
        for k in range(even, self.clients):
            holds[k], counts[k] = self._few_classes(stock, int(sizes[k]), rng)
        if self.leftovers == "deal":
            for label in np.flatnonzero(stock.left):
                owners = (counts[:, label] > 0) & (holds.sum(axis=1) < total)
                owners = owners if owners.any() else counts[:, label] > 0
                counts[:, label] += apportion(owners[None].astype(np.int64), stock.left[[label]], rng)[0]
        is_iid = (np.arange(self.clients) < even).astype(np.int64)
        return Partition(deal_counts(labels, counts, rng), truth=is_iid, iid=is_iid > 0)

    def _sizes(self, examples: int, rng: np.random.Generator) -> np.ndarray:
        weights = rng.integers(SIZES[0], SIZES[1] + 1, self.clients)
        return 1 + apportion(weights[None], np.array([examples - self.clients]), rng)[0]

    def _few_classes(
        self, stock: Stock, size: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        total, open_ = len(stock.left), np.flatnonzero(stock.left)
        fewest = max(1, round(self.low * total))
        wanted = int(rng.integers(fewest, max(fewest, round(self.high * total)) + 1))
        chance = stock.left[open_] / stock.left.sum()
        mine = rng.choice(open_, min(wanted, len(open_)), replace=False, p=chance)
        shares = np.zeros(total)
        shares[mine] = np.maximum(rng.dirichlet(np.full(len(mine), self.alpha)), 1e-12)
        size = min(size, int(stock.left[mine].sum()))  # capped: it never takes a class that is not its own
        return shares > 0, stock.take(shares, size)


def _stratified(stock: Stock, sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Counts in the global proportions for each client; taken from the stock."""
    if len(sizes) == 0:
        return np.zeros((0, len(stock.left)), dtype=np.int64)
    total = apportion(stock.left[None], np.array([sizes.sum()]), rng)[0]
    # Cut a shuffled list of labels: each client's mixture is then even up to chance, and the sums are exact.
    order = rng.permutation(np.repeat(np.arange(len(total)), total))
    client = np.repeat(np.arange(len(sizes)), sizes)
    counts = np.bincount(client * len(total) + order, minlength=len(sizes) * len(total))
    stock.left = stock.left - total
    return counts.reshape(len(sizes), -1)
