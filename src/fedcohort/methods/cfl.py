"""CFL: Sattler, Müller and Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization under Privacy Constraints", IEEE TNNLS 2021. https://arxiv.org/abs/1910.01991

Equation:
    split when ||sum_k p_k delta_k|| < eps1 and max_k ||delta_k|| > eps2,
    by the cosines a_ij = <delta_i, delta_j> / (||delta_i|| ||delta_j||),
    if sqrt((1 - max a_ij across the cut) / 2) > gamma

Where we differ:
    - The halves come from complete linkage, as in the authors' code; ``linkage="single"`` minimises the
      similarity across the cut, the paper's objective.
    - The mean is by samples, as in the paper; the code's is even (``weighted=False``), and it waits for round
      20 (``min_round=20``).
    - Only updates of the same round are compared: a group whose cohort has come to rest is called in full for
      the next round, and splits on what it says then. A member that stays away even then goes with the larger
      half. The paper lets every client take part in every round.
    - ``relative``, not in the paper, measures rest against the group's largest mean update so far.
    - Models of groups that split are forgotten; with ``ancestors`` they are kept, and a client that is
      evaluated takes the one with the lowest loss on its training data among its group's and theirs.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.api import (
    Asks,
    Grouping,
    Ids,
    Memory,
    Phase,
    Profile,
    Round,
    Updates,
    at_least,
    between,
    bipartition,
    combine,
    cosines,
    join_largest,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class CFL(Grouping, Asks):
    """Splits a group in two when its mean update vanishes although its clients still want to move."""

    eps1: Annotated[float, at_least(0), tune(0.01, 1)] = 0.4  # the mean update is at rest below this norm
    eps2: Annotated[float, at_least(0), tune(0.1, 4)] = 1.6  # some client still moves above this norm
    gamma: Annotated[float, between(0, 1)] = 0.0  # separation a split must reach; 0 accepts any
    linkage: Literal["complete", "single"] = "complete"  # of the halves: the authors' code, or the objective
    weighted: bool = True  # mean update by samples, as in the paper; False: the plain mean of the code
    relative: bool = False  # eps1 is a share of the group's largest mean update so far, not a norm
    ancestors: bool = False  # keep the models of groups that split, and let clients return to them
    min_round: Annotated[int, at_least(0)] = 0  # no split before this round; the authors' code waits for 20

    def init_grouping(self, profile: Profile) -> Memory:
        n, nodes = profile.num_clients, 2 * profile.num_clients  # of a tree whose leaves are groups
        return {
            "group": torch.zeros(n, dtype=torch.long),
            "call": torch.zeros(nodes, dtype=torch.bool),  # whether all of a group are to train
            "largest": torch.zeros(nodes),  # norm of a group's mean update so far
            "parent": torch.full((nodes,), -1),  # the group that a group split off, if its model is kept
        }

    def calls_all(self, memory: Memory, group: int) -> bool:
        return bool(memory["call"][group])

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Children aggregate their own members' updates, so a split comes first."""
        memory, at = {key: value.clone() for key, value in memory.items()}, memory["group"][now.members]
        for group in range(int(memory["group"].max()) + 1):
            own, members = updates.where(updates.group == group), now.members[at == group]
            called, memory["call"][group] = bool(memory["call"][group]), False
            if len(own) < 2 or now.number < self.min_round or "delta" not in own.up:
                continue
            mean, furthest = self.norms(own)
            memory["largest"][group] = largest = max(mean, float(memory["largest"][group]))
            if len(members) >= 3 and self.is_torn(mean, furthest, largest):
                memory["call"][group] = not called and len(own) < len(members)
                if not memory["call"][group]:
                    self._split(memory, group, members, own)
        return memory

    def is_torn(self, mean: float, furthest: float, largest: float) -> bool:
        """At rest together, not one by one."""
        return mean < self.eps1 * (largest if self.relative else 1) and furthest > self.eps2

    def norms(self, own: Updates) -> tuple[float, float]:
        """Of the mean update, and of the update that goes furthest."""
        delta, shares = own.up["delta"], own.shares if self.weighted else own.even
        return float(combine(shares, delta).norm()), float(delta.norm(dim=1).max())

    def _split(self, memory: Memory, group: int, members: Tensor, own: Updates) -> None:
        """In halves that are separated enough, if there are such; who is absent goes with the larger."""
        labels = bipartition(cosines(own.up["delta"]), self.linkage, apart=self.gamma)
        if not labels.any():
            return
        at, fresh = memory["group"], int(memory["group"].max()) + 1
        at[members[join_largest(labels, own.ids.numpy(), len(at))[members] == 1]] = fresh
        memory["largest"][fresh : fresh + 2] = memory["largest"][group]
        if self.ancestors:  # the group itself stays as it was, without clients
            at[at == group] = fresh + 1
            memory["parent"][fresh : fresh + 2] = group

    @property
    def may_ask(self) -> bool:
        return self.ancestors

    def asks(self, memory: Memory, now: Round, phase: Phase) -> Ids:
        """Where nobody trains, clients look for the model that serves them best."""
        return now.selected if self.ancestors and phase == "serving" else now.members[:0]

    def answer(self, losses: Tensor) -> Tensor:
        return losses.mean(1).nan_to_num(torch.inf)

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        """The lowest loss among a client's group and those it descends from; of equals, the nearest."""
        group = memory["group"].clone()
        for client, loss in zip(ids.tolist(), answers, strict=True):
            line = [int(group[client])]
            while (parent := int(memory["parent"][line[-1]])) >= 0:
                line.append(parent)
            group[client] = line[int(loss[line].argmin())]
        return {**memory, "group": group}
