"""Each client sees a fixed number of classes ("#C=k").

Li, Diao, Chen, He: Federated Learning on Non-IID Data Silos (ICDE 2022), https://arxiv.org/abs/2102.02079
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import rows_by_client
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least


@register
@dataclass(frozen=True)
class ClassesPerClient(Partitioner):
    """Client i owns class i mod C and random others; a class is cut equally between its owners."""

    drops: ClassVar[bool] = True  # few clients may leave a class without owner

    clients: Annotated[int, at_least(1)] = 10
    classes: Annotated[int, at_least(1)] = 2  # classes of each client

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        total = int(labels.max()) + 1
        if self.classes > total:
            raise UserError(f"{self.classes} classes per client, but the data have {total}: lower 'classes'")
        rng = self.generator(seed)
        holds = np.zeros((self.clients, total), dtype=bool)
        for k in range(self.clients):
            first = k % total
            others = np.delete(np.arange(total), first)
            holds[k, [first, *rng.choice(others, self.classes - 1, replace=False)]] = True
        client = np.full(len(labels), -1, dtype=np.int64)
        for label in range(total):
            rows, owners = rng.permutation(np.flatnonzero(labels == label)), np.flatnonzero(holds[:, label])
            if len(owners):
                pieces = np.array_split(rows, len(owners))
                client[rows] = np.repeat(owners, [len(piece) for piece in pieces])
        unowned = np.flatnonzero(~holds.any(axis=0)).tolist()
        return Partition(rows_by_client(client, self.clients), provenance={"unowned_classes": unowned})
