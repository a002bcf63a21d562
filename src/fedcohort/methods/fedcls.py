"""FedCLS: Li and Wu, "FedCLS: A Federated Learning Client Selection Algorithm Based on Cluster Label
Information", VTC Fall 2022.

A reading from the abstract and from papers that compare with it: which classes a client holds is a vector
of zeros and ones; clients whose vectors differ in at most a share tau of the classes form a group, and a
cohort takes one client of each group in turn. ``complement=True`` instead adds the client that differs most
from all chosen so far. Of the label counts it uses only which are not zero.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcohort.core.method import register
from fedcohort.core.parts import Ids, Memory, Round, Selector
from fedcohort.core.profile import Profile
from fedcohort.core.settings import between


@register
@dataclass(frozen=True)
class FedCLS(Selector):
    """Groups clients that hold nearly the same classes, and trains one of each group in turn."""

    tau: Annotated[float, between(0, 1)] = 0.1  # share of the classes in which a group's members may differ
    complement: bool = False  # no groups: add whoever differs most from those already chosen

    def uses(self) -> frozenset[str]:
        return frozenset({"counts"})

    def init_selector(self, profile: Profile) -> Memory:
        holds = profile.known_counts(self.name).round() > 0  # noise of less than half a sample is none
        return {"holds": holds, "cluster": self.cluster(holds)}

    def cluster(self, holds: Tensor) -> Tensor:
        """[N]: the first client without a group opens one and takes in all that are near it."""
        near = hamming(holds) <= int(self.tau * holds.shape[1] + 1e-9)
        cluster = torch.full((len(holds),), -1)
        for client in range(len(holds)):
            if cluster[client] < 0:
                cluster[near[client] & (cluster < 0)] = cluster.max() + 1
        return cluster

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        order = now.draw("select", count=len(now.members))
        if self.complement:
            return self.grow(int(order[0]), now.members, memory["holds"], now.cohort)
        groups: dict[int, list[int]] = {}
        for client in order.tolist():
            groups.setdefault(int(memory["cluster"][client]), []).append(client)
        # A group is as likely to be visited first as any other, however many clients it has.
        visits = torch.randperm(len(groups), generator=now.generator("visits")).tolist()
        ranked = [sorted(groups.items())[visit][1] for visit in visits]
        turns = range(max(len(group) for group in ranked))
        chosen = [group[turn] for turn in turns for group in ranked if turn < len(group)]
        return torch.tensor(chosen[: now.cohort], dtype=torch.long)

    def grow(self, first: int, members: Ids, holds: Tensor, cohort: int) -> Ids:
        """A cohort from ``first``, adding whoever is farthest from its nearest chosen client."""
        apart, chosen = hamming(holds), [first]
        while len(chosen) < min(cohort, len(members)):
            left = members[~torch.isin(members, torch.tensor(chosen))]
            gap = apart[left][:, chosen].amin(1)
            chosen.append(int(left[(gap == gap.max()).nonzero()[0]]))  # the lowest number of the farthest
        return torch.tensor(chosen)


def hamming(holds: Tensor) -> Tensor:
    """[N, N]: in how many classes each two clients differ."""
    held = holds.double()
    both = held @ held.t()
    total = held.sum(1)
    return total[:, None] + total - 2 * both
