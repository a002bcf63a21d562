"""Clust-PSI-PFL: Jimenez-Gutierrez et al., "Clust-PSI-PFL: A Population Stability Index Approach for
Clustered Non-IID Personalized Federated Learning". https://arxiv.org/abs/2512.20363

Where the paper leaves a choice: zero probabilities get 1e-6 on both sides, as in the authors' code
(``smoothing="laplace"`` depends less on that number). Two properties of the paper's algorithm deserve a
warning: it always forms at least two groups, also of IID clients (``gate=True`` prevents that), and its
features do not tell too many of a class from too few (``signed=True`` does).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch

from fedcohort.cluster import join_largest, kmeans_by_silhouette
from fedcohort.core.method import register
from fedcohort.core.parts import Grouping, Memory
from fedcohort.core.profile import Profile
from fedcohort.core.settings import above, at_least
from fedcohort.diagnosis.distances import wpsi
from fedcohort.diagnosis.grouping import psi_features, standardise

STABLE = 0.1  # credit scoring calls a population stable below this index


@register
@dataclass(frozen=True)
class ClustPsiPfl(Grouping):
    """Groups clients by how each class deviates from the federation's share; one model per group."""

    smoothing: Literal["eps", "laplace"] = "eps"  # add eps to probabilities, or half a sample to counts
    eps: Annotated[float, above(0)] = 1e-6  # stands for a missing class; sets the scale of the index
    signed: bool = False  # tell a surplus of a class from a shortage
    gate: bool = False  # keep one group when the index is what IID sampling would give
    max_groups: Annotated[int, at_least(2)] | None = None  # most tried; None: clients - 1, 20 beyond 200

    def uses(self) -> frozenset[str]:
        return frozenset({"counts"})

    def init_grouping(self, profile: Profile) -> Memory:
        counts = profile.known_counts(self.name).numpy()
        known = np.flatnonzero((counts.sum(1) > 0) & (profile.size.numpy() > 0))
        labels = self.groups_of(counts[known], profile.seed)
        return {"group": torch.from_numpy(join_largest(labels, known, len(counts)))}

    def groups_of(self, counts: np.ndarray, seed: int) -> np.ndarray:
        """The group of each client, by K-means with the best silhouette."""
        if self.gate and self.is_stable(counts):
            return np.zeros(len(counts), dtype=np.int64)
        features = standardise(psi_features(counts, self.smoothing, self.eps, signed=self.signed)).features
        most = self.max_groups or (len(counts) - 1 if len(counts) <= 200 else 20)
        return kmeans_by_silhouette(features, most, seed).labels

    def is_stable(self, counts: np.ndarray) -> bool:
        """Whether the deviation is that of chance: under IID sampling WPSI is about (C-1)(K-1)/N."""
        clients, classes = counts.shape
        chance = (classes - 1) * (clients - 1) / counts.sum()
        return wpsi(counts, self.smoothing, self.eps) < max(STABLE, 3 * chance)
