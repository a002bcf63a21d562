"""What clients reveal of their data before training: label counts and summaries, exact, noised or none."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.noise import simulated_noise, tidied
from fedcohort.core.profile import Privacy
from fedcohort.data.federation import Federation


class Disclosed(NamedTuple):
    """What the server is told of all clients."""

    counts: Tensor | None  # [K, C], or None when withheld
    summaries: dict[str, Tensor]  # [K, ...] of each part that asks for one; none when withheld


def disclose(federation: Federation, method: Method, privacy: Privacy, seed: int) -> Disclosed:
    """What simulated clients reveal to this method.

    Noise is drawn from ``seed`` and from the examples: the same experiment repeats it, but who has only
    the seed and what was told cannot take it away again.
    """
    privacy = method.privacy(privacy)
    if privacy.counts == "withheld":
        return Disclosed(None, {})
    summaries = {
        part.name: torch.stack(
            [
                part.summarise(*federation.train.examples(client), federation.num_classes)
                for client in range(federation.num_clients)
            ]
        )
        for part in method.summarising
    }
    if privacy.counts == "exact":
        tables = {name: table.double() for name, table in summaries.items()}
        return Disclosed(federation.counts.double(), tables)
    sizes, key = federation.train.sizes.tolist(), (privacy.epsilon, seed, federation.unprinted)
    tables = {name: noised(table, sizes, f"summary of {name}", *key) for name, table in summaries.items()}
    return Disclosed(noised(federation.counts, sizes, "counts", *key), tables)


def noised(tables: Tensor, sizes: list[int], what: str, epsilon: float, seed: int, secret: str) -> Tensor:
    """Each client's table with noise of its own."""
    told = []
    for client, (table, size) in enumerate(zip(tables, sizes, strict=True)):
        noise = simulated_noise(table, epsilon, seed, secret, what, repr(epsilon), client)
        told.append(tidied(table + noise, size))
    return torch.stack(told)
