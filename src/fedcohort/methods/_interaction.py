"""What FedGWC remembers in either of its readings, and what a round does to it: a matrix of the rewards that
clients got in whose company, and groups that split once it has settled."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import Grouping, Memory, Profile, Round, Tells, Updates, join_largest


class Lesson(NamedTuple):
    """What a cohort teaches about its group."""

    reward: Tensor  # [m] of each client
    alpha: float  # its weight against what was known
    smooth: float  # the weight of this round's change against that of earlier ones
    turns: float  # rounds in which everybody could have been seen


class Interaction(Grouping, Tells):
    """Learns the matrix from rewards; where to split, if at all, is for ``parts`` to say."""

    alpha: float
    tolerance: float
    unbiased: bool

    def lesson(self, cohort: Updates, members: Tensor, now: Round) -> Lesson:
        raise NotImplementedError

    def parts(self, interaction: np.ndarray, profile: Profile) -> np.ndarray:
        raise NotImplementedError

    def first(self, clients: int, start: float) -> Memory:
        """The memory before the first round, with ``start`` in the whole matrix."""
        return {
            "group": torch.zeros(clients, dtype=torch.long),
            "interaction": torch.full((clients, clients), start, dtype=torch.float64),
            "gamma": torch.zeros(clients, dtype=torch.float64),  # Gaussian weight of each client
            "change": torch.ones(clients, dtype=torch.float64),  # of each group: how much a round moves it
            "settled": torch.zeros(
                clients, dtype=torch.long
            ),  # of each group: rounds in a row below tolerance
            **({"times": torch.zeros(clients, clients)} if self.unbiased else {}),  # that an entry was seen
        }

    def of_groups(self, memory: Memory) -> Memory:
        return {"interaction_change": memory["change"][: int(memory["group"].max()) + 1]}

    def of_clients(self, memory: Memory) -> Memory:
        return {"gaussian_weight": memory["gamma"]}

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        memory = {key: value.clone() for key, value in memory.items()}
        for group in range(int(memory["group"].max()) + 1):
            cohort = updates.where(updates.group == group)
            if len(cohort) > 1:
                members = now.members[memory["group"][now.members] == group]
                self._learn(memory, group, cohort, members, now)
        return memory

    def _learn(self, memory: Memory, group: int, cohort: Updates, members: Tensor, now: Round) -> None:
        reward, alpha, smooth, turns = self.lesson(cohort, members, now)
        seen = torch.meshgrid(cohort.ids, cohort.ids, indexing="ij")
        before = memory["interaction"][seen]
        after = (1 - alpha) * before + alpha * reward[:, None]
        memory["interaction"][seen] = after
        memory["gamma"][cohort.ids] = (1 - alpha) * memory["gamma"][cohort.ids] + alpha * reward
        if self.unbiased:
            memory["times"][seen] += 1
        moved = ((after - before) / reward.sum()).pow(2).mean()
        memory["change"][group] = (1 - smooth) * memory["change"][group] + smooth * moved
        below = bool(memory["change"][group] < self.tolerance)
        memory["settled"][group] = memory["settled"][group] + 1 if below else 0
        if memory["settled"][group] >= max(1, round(turns)):
            self._split(memory, group, members, now.profile)

    def _split(self, memory: Memory, group: int, members: Tensor, profile: Profile) -> None:
        memory["change"][group], memory["settled"][group] = 1.0, 0
        fresh = int(memory["group"].max())
        if fresh and len(members) <= profile.cohort:
            return  # so small a part is not split again
        labels = self.parts(self.interaction(memory, members).numpy(), profile)
        for part in range(1, int(labels.max()) + 1):
            memory["group"][members[torch.from_numpy(labels == part)]] = fresh + part
            memory["change"][fresh + part], memory["settled"][fresh + part] = 1.0, 0
        known, group_of = profile.eligible.numpy(), memory["group"]
        memory["group"] = torch.from_numpy(join_largest(group_of[known].numpy(), known, len(group_of)))

    def interaction(self, memory: Memory, members: Tensor) -> Tensor:
        """Between these clients. After c rounds an entry has only 1 - (1 - alpha)^c of what it averages."""
        matrix = memory["interaction"][members][:, members]
        if not self.unbiased:
            return matrix
        weight = 1 - (1 - self.alpha) ** memory["times"][members][:, members].double()
        return torch.where(weight > 0, matrix / weight, 0.0)
