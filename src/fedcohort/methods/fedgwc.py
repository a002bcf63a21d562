"""FedGWC: Licciardi et al., "Interaction-Aware Gaussian Weighting for Clustered Federated Learning", ICML
2025.

Equation:
    w_k = mean_s exp(-(l_ks - mean_s)^2 / (2 var_s))    (Eq. 1; s: local steps,
                                           mean and variance of the cohort)
    P_kj <- (1 - alpha) P_kj + alpha w_k, for k, j in the cohort    (Eq. 3)
    W_kj = exp(-beta ||v_k - v_j||^2), v without entries k and j    (Eq. 4)
    once P has settled: spectral clustering of W into the number of parts of
    lowest Davies-Bouldin score, if that is below one

Where we differ:
    - v_k is column k of P, as in the authors' code. The text has rows (``view="row"``), but in row k every
      entry averages the same weight, so rows hardly tell who was in the room.
    - When P has settled is not defined in the paper. As in the code it is an average of squared changes over
      the entries a round touches, below ``tolerance`` for as many rounds as it takes to see everybody once.
    - The most parts of a split are not stated; the code tries up to four. Groups smaller than ``min_group``
      are never formed; the code only reports them.
    - Entries of P start at zero, so those seen rarely are too small; ``unbiased``, not in the paper, corrects
      that.
    - Where clients take different numbers of steps, each step compares those that took it.
    - Clients are drawn uniformly unless it is combined with ``explore``.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort import gaussian
from fedcohort.cluster import join_largest, spectral_by_davies_bouldin, upv_distance
from fedcohort.core.method import register
from fedcohort.core.parts import Grouping, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.settings import above, at_least, between


@register
@dataclass(frozen=True)
class FedGWC(Grouping):
    """Splits a group where its clients' loss curves stop looking like one Gaussian."""

    alpha: Annotated[float, between(0, 1)] = 0.1  # memory of the interaction matrix
    beta: Annotated[float, above(0)] = 0.5  # sharpness of the kernel between clients
    tolerance: Annotated[float, above(0)] = 1e-5  # below this change the matrix has settled
    max_groups: Annotated[int, at_least(2)] = 4  # most parts of one split
    min_group: Annotated[int, at_least(1)] = 3  # no split leaves a smaller group
    unbiased: bool = False  # make up for entries of the matrix that started at zero and were seen rarely
    view: Literal["column", "row"] = "column"  # of the interaction matrix, that stands for a client

    def uses(self) -> frozenset[str]:
        return frozenset({"trace"})

    def server_bytes(self, profile: Profile) -> int:
        """The interaction matrix, its next value, and the kernel with its distances."""
        return 4 * 8 * profile.num_clients**2

    def init_grouping(self, profile: Profile) -> Memory:
        n = profile.num_clients
        return {
            "group": torch.zeros(n, dtype=torch.long),
            "interaction": torch.zeros(n, n, dtype=torch.float64),
            "change": torch.ones(
                n, dtype=torch.float64
            ),  # of each group: how much a round still moves the matrix
            "settled": torch.zeros(n, dtype=torch.long),  # of each group: rounds in a row below tolerance
            **({"times": torch.zeros(n, n)} if self.unbiased else {}),  # that an entry was seen
        }

    def cohort(self, members: int, fraction: float) -> int:
        """With fewer than three clients every loss looks equally typical."""
        return min(members, max(3, round(fraction * members)))

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        memory = {key: value.clone() for key, value in memory.items()}
        for group in range(int(memory["group"].max()) + 1):
            cohort = updates.where(updates.group == group)
            if len(cohort) > 1:
                self._learn(memory, group, cohort, now)
        return memory

    def _learn(self, memory: Memory, group: int, cohort: Updates, now: Round) -> None:
        members = now.members[memory["group"][now.members] == group]
        seen = torch.meshgrid(cohort.ids, cohort.ids, indexing="ij")
        before = memory["interaction"][seen]
        after = (1 - self.alpha) * before + self.alpha * gaussian.typical(cohort.trace)[:, None]
        memory["interaction"][seen] = after
        if self.unbiased:
            memory["times"][seen] += 1
        moved = (after - before).pow(2).mean()
        memory["change"][group] = (1 - self.alpha) * memory["change"][group] + self.alpha * moved
        below = bool(memory["change"][group] < self.tolerance)
        memory["settled"][group] = memory["settled"][group] + 1 if below else 0
        if memory["settled"][group] >= max(1, round(len(members) / len(cohort))):
            self._split(memory, group, members, len(cohort), now)

    def _split(self, memory: Memory, group: int, members: Tensor, cohort: int, now: Round) -> None:
        memory["change"][group], memory["settled"][group] = 1.0, 0
        labels = self.parts(self.interaction(memory, members).numpy(), cohort, now.profile.seed)
        fresh = int(memory["group"].max())
        for part in range(1, int(labels.max()) + 1):
            memory["group"][members[torch.from_numpy(labels == part)]] = fresh + part
            memory["change"][fresh + part], memory["settled"][fresh + part] = 1.0, 0
        known = now.profile.eligible.numpy()
        memory["group"] = torch.from_numpy(
            join_largest(memory["group"][known].numpy(), known, len(memory["group"]))
        )

    def interaction(self, memory: Memory, members: Tensor) -> Tensor:
        """Between these clients. After c rounds an entry has only 1 - (1 - alpha)^c of what it averages."""
        matrix = memory["interaction"][members][:, members]
        if not self.unbiased:
            return matrix
        weight = 1 - (1 - self.alpha) ** memory["times"][members][:, members].double()
        return torch.where(weight > 0, matrix / weight, 0.0)

    def parts(self, interaction: np.ndarray, cohort: int, seed: int) -> np.ndarray:
        """The part of each member; all zero when no split has a Davies-Bouldin score below one."""
        views = interaction.T if self.view == "column" else interaction
        affinity = np.exp(-self.beta * upv_distance(views))
        most = min(len(affinity) // cohort, self.max_groups)
        return spectral_by_davies_bouldin(affinity, most, self.min_group, seed)
