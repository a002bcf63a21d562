"""FedCLS: Li and Wu, "FedCLS: A Federated Learning Client Selection Algorithm Based on Cluster Label
Information", VTC Fall 2022.

Of the label counts it uses only which are not zero.

Equation:
    z_kc = 1 if n_kc > 0 else 0
    k joins the group of the first client i with sum_c |z_ic - z_kc| <= tau C

Where we differ:
    This is a reading from the abstract and from papers that compare with it; the paper and code were not
    available. A cohort takes one client of each group in turn, groups in random order. ``complement=True``
    instead adds the client that differs most from all chosen so far; of more than 20,000 clients it looks at
    that many, drawn for each round.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import Ids, Memory, Profile, Round, Selector, between, register, tune

MANY = 20_000  # clients among whom the farthest is looked for


@register
@dataclass(frozen=True)
class FedCLS(Selector):
    """Groups clients that hold nearly the same classes, and trains one of each group in turn."""

    heeds_odds: ClassVar[bool] = True

    tau: Annotated[float, between(0, 1), tune(0, 0.5)] = 0.1  # share of classes in which members may differ
    complement: bool = False  # no groups: add whoever differs most from those already chosen

    def uses(self) -> frozenset[str]:
        return frozenset({"counts"})

    def init_selector(self, profile: Profile) -> Memory:
        holds = profile.known_counts(self.name).round() > 0  # noise of less than half a sample is none
        return {"holds": holds, "cluster": self.cluster(holds)}

    def cluster(self, holds: Tensor) -> Tensor:
        """[N]: the first client without a group opens one and takes in all that are near it."""
        packed = np.packbits(holds.numpy(), axis=1)  # clients of one set of classes go together
        _, first, member = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        sets, left, number = holds[first], torch.from_numpy(first).argsort(), 0
        cluster = torch.full((len(sets),), -1)
        while len(left):
            near = differing(sets[left], sets[left[0]]) <= int(self.tau * holds.shape[1] + 1e-9)
            cluster[left[near]] = number
            left, number = left[~near], number + 1
        return cluster[member.reshape(-1)]

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        order = now.draw("select", count=len(now.members))
        if self.complement:
            return self.grow(int(order[0]), order[:MANY].sort().values, memory["holds"], now.cohort)
        # A group is as likely to be visited first as any other, however many clients it has.
        groups, group = memory["cluster"][order].unique(return_inverse=True)
        visit = torch.randperm(len(groups), generator=now.generator("visits")).argsort()
        by_group = group.argsort(stable=True)
        begins = group.bincount().cumsum(0) - group.bincount()
        turn = torch.empty_like(group)
        turn[by_group] = torch.arange(len(group)) - begins[group[by_group]]
        return order[(turn * len(groups) + visit[group]).argsort()[: now.cohort]]

    def grow(self, first: int, members: Ids, holds: Tensor, cohort: int) -> Ids:
        """A cohort from ``first``, adding whoever is farthest from its nearest chosen client."""
        own, last = holds[members], int((members == first).nonzero())
        chosen, gap = [last], torch.full((len(members),), holds.shape[1])
        while len(chosen) < min(cohort, len(members)):
            gap = gap.minimum(differing(own, own[last]))
            gap[last] = -1  # nobody is chosen twice
            last = int((gap == gap.max()).nonzero()[0])  # the lowest number of the farthest
            chosen.append(last)
        return members[chosen]


def differing(holds: Tensor, one: Tensor) -> Tensor:
    """[N]: in how many classes each client differs from ``one [C]``."""
    return (holds != one).sum(1)
