"""FedGWC: Licciardi et al., "Interaction-Aware Gaussian Weighting for Clustered Federated Learning", ICML
2025.

Equation:
    w_k = mean_s exp(-(l_ks - mean_s)^2 / (2 var_s))    (Eq. 1; s: local steps,
                                           mean and variance of the cohort)
    gamma_k <- (1 - alpha) gamma_k + alpha w_k    (Eq. 2; told in results)
    P_kj <- (1 - alpha) P_kj + alpha w_k, for k, j in the cohort    (Eq. 3)
    W_kj = exp(-beta ||v_k - v_j||^2), v without entries k and j    (Eq. 4)
    once P has settled: spectral clustering of W into the number of parts of
    lowest Davies-Bouldin score, if that is below one

Where we differ:
    - v_k is column k of P, as in the authors' code. The text has rows (``view="row"``), but in row k every
      entry averages the same weight, so rows hardly tell who was in the room. On CIFAR-10's losses they
      split clients that are all alike (studies/fedgwc_groups.md, which has all readings).
    - When P has settled is not defined in the paper. As in the code it is an average of squared changes over
      the entries a round touches, below ``tolerance`` for as many rounds as it takes to see everybody once.
      The code divides rewards by their sum over the cohort and the published tolerances belong to that scale,
      so changes are measured on it; on raw rewards 1e-5 is never reached and the method is FedAvg.
    - The most parts of a split are not stated; the code tries up to four. No part may be so small that
      splitting makes more clients train (Theorem A.5: at least 3 / rho, where the share rho trains);
      ``min_group=3`` allows all that can still be told apart. A part that is no larger than a cohort of the
      whole federation is never split again.
    - Spectral labels come from a pivoted QR, as in the code; ``spectral="kmeans"`` is Ng et al., whom the
      paper cites.
    - Entries of P start at zero, so those seen rarely are too small; ``unbiased``, not in the paper, corrects
      that.
    - alpha is constant, as in the experiments. Theorem 5.1 wants one that falls: ``decay`` between 0.5 and 1,
      with the round t, alpha_t = alpha t^-decay.
    - Where clients take different numbers of steps, each step compares those that took it, and one that fewer
      than three took does not count.
    - Clients are drawn uniformly unless it is combined with ``explore``.
    - ``reading="code"`` is the authors' whole pipeline: mean and variance weighted by samples, of the losses
      or of ``padding`` values drawn to look like them; rewards over their sum; P from 1/K^2, with alpha the
      cohort over the group; P between 0 and 1 before the kernel, whose diagonal is 0; Davies-Bouldin on the
      spectral embedding; at most K / m parts of any size; the same cohort in every group, however small.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import (
    Grouping,
    Memory,
    Profile,
    Round,
    Tells,
    Updates,
    above,
    at_least,
    between,
    clustering,
    gaussian,
    interaction,
    join_largest,
    register,
    tune,
)

LEAST = 3  # clients among whom one can be untypical


@register
@dataclass(frozen=True)
class FedGWC(Grouping, Tells):
    """Splits a group where its clients' loss curves stop looking like one Gaussian."""

    alpha: Annotated[float, between(0, 1)] = 0.1  # memory of the interaction matrix
    beta: Annotated[float, above(0), tune(0.1, 4)] = 0.5  # sharpness of the kernel between clients
    tolerance: Annotated[float, above(0)] = 1e-5  # below this change the matrix has settled
    max_groups: Annotated[int, at_least(2)] = 4  # most parts of one split
    min_group: Annotated[int, at_least(0)] = 0  # no split leaves a smaller group; 0: as Theorem A.5 has it
    decay: Annotated[float, between(0, 1)] = 0.0  # how fast alpha falls with the rounds
    unbiased: bool = False  # make up for entries of the matrix that started at zero and were seen rarely
    view: Literal["column", "row"] = "column"  # of the interaction matrix, that stands for a client
    spectral: clustering.Assign = "cluster_qr"  # how spectral clustering gives labels
    reading: Literal["paper", "code"] = "paper"  # the text, or all that the authors' code does otherwise
    padding: Annotated[int, between(0, 10_000)] = 0  # values drawn beside the losses, in the code's reading

    def uses(self) -> frozenset[str]:
        return frozenset({"trace"})

    def server_bytes(self, profile: Profile) -> int:
        """The interaction matrix, its next value, and the kernel with its distances."""
        return 4 * 8 * profile.num_clients**2

    def init_grouping(self, profile: Profile) -> Memory:
        n, code = profile.num_clients, self.reading == "code"
        matrix = interaction.first_memory(n, 1 / n**2 if code else 0.0, count=self.unbiased)
        return {"group": torch.zeros(n, dtype=torch.long), **matrix}

    def of_groups(self, memory: Memory) -> Memory:
        return {"interaction_change": memory["change"][: int(memory["group"].max()) + 1]}

    def of_clients(self, memory: Memory) -> Memory:
        return {"gaussian_weight": memory["gamma"]}

    def cohort(self, members: int, profile: Profile) -> int:
        wanted = profile.cohort if self.reading == "code" else super().cohort(members, profile)
        return min(members, max(LEAST, wanted))

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        memory = {key: value.clone() for key, value in memory.items()}
        for group in range(int(memory["group"].max()) + 1):
            cohort = updates.where(updates.group == group)
            members = now.members[memory["group"][now.members] == group]
            lesson = self.lesson(cohort, members, now) if len(cohort) > 1 else None
            if lesson and interaction.learn(memory, group, cohort.ids, lesson, self.tolerance):
                memory["group"] = self.split(memory, members, now.profile)
        return memory

    def lesson(self, cohort: Updates, members: Tensor, now: Round) -> interaction.Lesson:
        if self.reading == "code":
            noise, turns = now.generator(f"padding {cohort.group[0]}"), len(members) / now.profile.cohort
            reward = gaussian.typical_shares(cohort.trace, cohort.shares, self.padding, noise)
            return interaction.Lesson(reward, min(1.0, 1 / turns), min(1.0, 1 / turns), turns)
        reward, alpha = gaussian.typical(cohort.trace), self.alpha * (now.number + 1) ** -self.decay
        return interaction.Lesson(reward, alpha, self.alpha, len(members) / len(cohort))

    def split(self, memory: Memory, members: Tensor, profile: Profile) -> Tensor:
        """Everybody's group once these members have been parted, if they can be."""
        at, fresh, known = memory["group"].clone(), int(memory["group"].max()), profile.eligible
        if fresh and len(members) <= profile.cohort:
            return at  # so small a part is not split again
        labels = torch.from_numpy(self.parts(self.matrix(memory, members).numpy(), profile))
        at[members] = torch.where(labels > 0, fresh + labels, at[members])
        return torch.from_numpy(join_largest(at[known].numpy(), known.numpy(), len(at)))

    def matrix(self, memory: Memory, members: Tensor) -> Tensor:
        return interaction.between(memory, members, self.alpha if self.unbiased else None)

    def parts(self, matrix: np.ndarray, profile: Profile) -> np.ndarray:
        """The part of each member; all zero when no split has a Davies-Bouldin score below one."""
        views, code = matrix if self.view == "row" else matrix.T, self.reading == "code"
        alike = (clustering.stretched_alike if code else clustering.perceived_alike)(views, self.beta)
        most = min(len(views) // profile.cohort, self.max_groups) if code else self.max_groups
        least = 1 if code else self.min_group or math.ceil(LEAST / profile.share - 1e-9)
        return clustering.spectral_by_davies_bouldin(
            alike, most, least, profile.seed, "embedding" if code else "rows", self.spectral
        )
