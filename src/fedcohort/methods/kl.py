"""The KL baseline: Seol and Kim, "Performance Enhancement in Federated Learning by Reducing Class Imbalance
of Non-IID Data", Sensors 2023, Algorithm 2.

Divergence only stops the search; what fills a cohort is the class that is short. Without a threshold cohorts
are as large as other methods'. The same clients are chosen in every round.

Equation:
    v = counts of the largest client, M = max_c v_c
    next: the largest k left that holds the class argmin v; it trains on
          s_c = min(M - v_c, n_kc) samples of each class c, and v <- v + s
    stop at m clients or at KL(v / sum v || uniform) < threshold

Where we differ:
    - The printed loop tests for its end only after a whole pass and can run for ever. Here it stops as soon
      as enough clients are found, the divergence is small or all classes are full, never takes a client
      twice, and gives up when nobody can help.
    - The threshold and the base of its logarithm are not stated; ours are no threshold, and nats.
    - The modules that oversample and adapt batch size and learning rate are not part of selection.
"""

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcohort.api import Ids, Memory, Profile, Rations, Round, Selector, at_least, entropy, register

PIECE = 4096  # clients looked at together


@register
@dataclass(frozen=True)
class KL(Selector, Rations):
    """Fills the cohort's rarest class from the largest clients, and trains on no more than the commonest
    class of the largest one."""

    threshold: Annotated[float, at_least(0)] = 0.0  # stop below this divergence from uniform, in nats
    truncate: bool = True  # clients leave out samples of classes that are full; False: train on all

    def uses(self) -> frozenset[str]:
        return frozenset({"counts"})

    def init_selector(self, profile: Profile) -> Memory:
        return {"counts": profile.known_counts(self.name)}

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return torch.tensor(list(self.plan(memory["counts"], now)), dtype=torch.long)

    def allow(self, memory: Memory, now: Round) -> Tensor | None:
        if not self.truncate:
            return None
        plan = self.plan(memory["counts"], now)
        return torch.stack([plan[client] for client in now.selected.tolist()])

    def plan(self, counts: Tensor, now: Round) -> dict[int, Tensor]:
        """The cohort in order of choice, with the samples of each class that each client gives."""
        order = now.members[counts[now.members].sum(1).argsort(descending=True, stable=True)]
        first = int(order[0])
        plan, total = {first: counts[first]}, counts[first].clone()
        full, helped = total.max(), True
        while helped:
            place, helped = 0, False  # the last one in the order that was looked at
            while len(plan) < now.cohort and not self._is_even(total, full):
                found = self._next_holder(counts[:, total.argmin()], order, place, plan)
                if found is None:
                    break
                place, helped, client = found, True, int(order[found])
                plan[client] = torch.minimum(full - total, counts[client])
                total += plan[client]
        return plan

    def _next_holder(self, count: Tensor, order: Ids, place: int, plan: Container[int]) -> int | None:
        """The next place in the order of somebody who holds samples, by ``count [N]``, and is not in the
        plan."""
        for start in range(place + 1, len(order), PIECE):
            for at in (count[order[start : start + PIECE]] > 0).nonzero().flatten().tolist():
                if int(order[start + at]) not in plan:
                    return start + at
        return None

    def _is_even(self, total: Tensor, full: Tensor) -> bool:
        every_class_is_full = bool((total >= full - 1e-9).all())
        return every_class_is_full or (self.threshold > 0 and divergence(total) < self.threshold)


def divergence(counts: Tensor) -> float:
    """Kullback-Leibler divergence of label counts from the uniform distribution, in nats."""
    return math.log(len(counts)) - math.log(2) * float(entropy(counts))
