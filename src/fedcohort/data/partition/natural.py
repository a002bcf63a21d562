"""The data's own clients: writers, hospitals, states."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedcohort.data.partition import Partition, Partitioner, register
from fedcohort.data.partition._dealing import rows_by_client
from fedcohort.util.errors import UserError
from fedcohort.util.names import in_order, safe_names
from fedcohort.util.settings import at_least


@register
@dataclass(frozen=True)
class Natural(Partitioner):
    """One client for each value of the client column, ordered by name: "site 10" comes after "site 9"."""

    drops: ClassVar[bool] = True
    by_owner: ClassVar[bool] = True

    min_samples: Annotated[int, at_least(1)] = 1  # smaller clients are left out
    max_clients: Annotated[int, at_least(1)] | None = None  # keep this many, chosen at random

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        if owner is None:
            raise UserError(
                "the partition 'natural' needs data that name each row's client: "
                "set the source's client column, or choose another partition"
            )
        found, client, sizes = np.unique(np.asarray(owner), return_inverse=True, return_counts=True)
        names = safe_names([str(name) for name in found])
        order = np.array(in_order(names))
        client, sizes = np.argsort(order)[client], sizes[order]
        kept = np.flatnonzero(sizes >= self.min_samples)
        if len(kept) == 0:
            raise UserError(
                f"no client has {self.min_samples} examples (the largest: {sizes.max()}): lower 'min_samples'"
            )
        small = len(found) - len(kept)
        if self.max_clients is not None and len(kept) > self.max_clients:
            kept = np.sort(self.generator(seed).choice(kept, self.max_clients, replace=False))
        number = np.full(len(found), -1, dtype=np.int64)
        number[kept] = np.arange(len(kept))
        story = {"clients": len(kept), "clients_found": len(found), "clients_too_small": small}
        called = tuple(names[place] for place in order[kept])
        return Partition(rows_by_client(number[client], len(kept)), names=called, provenance=story)
