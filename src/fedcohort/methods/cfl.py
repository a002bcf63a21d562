"""CFL: Sattler, Müller and Samek, "Clustered Federated Learning: Model-Agnostic Distributed Multi-Task
Optimization under Privacy Constraints", IEEE TNNLS 2021. https://arxiv.org/abs/1910.01991

Where the paper leaves a choice: the two halves come from complete linkage, as in the authors' code
(``linkage="single"`` minimises the similarity across the cut, the paper's objective). Only updates of the
same round are compared: a group whose cohort has come to rest is called in full for the next round, and
splits on what it says then. A member that stays away even then goes with the larger half.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.cluster import bipartition
from fedcohort.core.method import register
from fedcohort.core.parts import Grouping, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.rows import combine
from fedcohort.core.settings import at_least, between

COLUMNS = 1 << 16  # of the updates that are compared in double precision at a time


@register
@dataclass(frozen=True)
class CFL(Grouping):
    """Splits a group in two when its mean update vanishes although its clients still want to move."""

    eps1: Annotated[float, at_least(0)] = 0.4  # the mean update is at rest below this norm
    eps2: Annotated[float, at_least(0)] = 1.6  # some client still moves above this norm
    gamma: Annotated[float, between(0, 1)] = 0.0  # separation a split must reach; 0 accepts any
    linkage: Literal["complete", "single"] = "complete"  # of the halves: the authors' code, or the objective
    weighted: bool = True  # mean update by samples, as in the paper; False: the plain mean of the code
    min_round: Annotated[int, at_least(0)] = 0  # no split before this round; the authors' code waits for 20

    def init_grouping(self, profile: Profile) -> Memory:
        n = profile.num_clients
        return {"group": torch.zeros(n, dtype=torch.long), "call": torch.zeros(n, dtype=torch.bool)}

    def calls_all(self, memory: Memory, group: int) -> bool:
        return bool(memory["call"][group])

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Children aggregate their own members' updates, so a split comes first."""
        memory = {key: value.clone() for key, value in memory.items()}
        for group in range(int(memory["group"].max()) + 1):
            own = updates.where(updates.group == group)
            called, memory["call"][group] = bool(memory["call"][group]), False
            if len(own) < 2 or now.number < self.min_round or "delta" not in own.up:
                continue
            members = now.members[memory["group"][now.members] == group]
            if len(members) < 3 or not self.is_torn(own):
                continue
            if called or len(own) == len(members):
                self._split(memory, group, members, own)
            else:
                memory["call"][group] = True
        return memory

    def is_torn(self, own: Updates) -> bool:
        """At rest together, not one by one."""
        mean, largest = self.norms(own)
        return mean < self.eps1 and largest > self.eps2

    def norms(self, own: Updates) -> tuple[float, float]:
        """Of the mean update, and of the largest one."""
        delta = own.up["delta"]
        shares = own.shares if self.weighted else torch.full((len(own),), 1 / len(own))
        return float(combine(shares, delta).norm()), float(delta.norm(dim=1).max())

    def _split(self, memory: Memory, group: int, members: Tensor, own: Updates) -> None:
        labels = self.halves(cosines(own.up["delta"]))
        if not labels.any():
            return
        second = torch.from_numpy(labels == 1)
        absent = members[~torch.isin(members, own.ids)]
        leaving = [own.ids[second], absent] if 2 * second.sum() > len(own) else [own.ids[second]]
        memory["group"][torch.cat(leaving)] = int(memory["group"].max()) + 1

    def halves(self, similarity: np.ndarray) -> np.ndarray:
        """0 or 1 for each client; all 0 when the halves are not separated enough."""
        labels = bipartition(similarity, self.linkage)
        return labels if separation(similarity, labels) > self.gamma else np.zeros_like(labels)


def cosines(delta: Tensor) -> np.ndarray:
    """Similarity of every two updates; 0 with one that is zero."""
    products = torch.zeros(len(delta), len(delta), dtype=torch.float64)
    for columns in delta.split(COLUMNS, 1):
        products += columns.double() @ columns.double().T
    norms = products.diag().sqrt().clamp(min=1e-12)
    return (products / norms / norms[:, None]).clamp(-1, 1).numpy()


def separation(similarity: np.ndarray, labels: np.ndarray) -> float:
    """sqrt((1 - s) / 2), s the greatest similarity across the cut: 0 for no cut at all, 1 for opposites."""
    across = similarity[np.ix_(labels == 0, labels == 1)]
    return float(np.sqrt((1 - across.max()) / 2)) if across.size else 0.0
