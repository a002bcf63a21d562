"""Clust-PSI-PFL: Jimenez-Gutierrez et al., "Clust-PSI-PFL: A Population Stability Index Approach for
Clustered Non-IID Personalized Federated Learning". https://arxiv.org/abs/2512.20363

Two properties of the paper's algorithm deserve a warning: it always forms at least two groups, also of IID
clients (``gate=True`` prevents that), and its features do not tell too many of a class from too few
(``signed=True`` does).

Beyond the paper, which names both as open: ``features`` adds the PSI of every attribute, cut at the quantiles
of a standard normal so that nobody has to agree on bounds (sources standardise numbers), and ``quantity``
that of the clients' shares of all samples. Labels, attributes and quantity then weigh the same, unless
``gate=True`` leaves out a kind in which clients differ by chance alone. Each client sends its counts in these
bins once; noise for privacy is shared among all attributes, and drowns them if they are many.

Equation:
    t_kc = (P_c - q_kc) ln(P_c / q_kc)    (Eq. 2; q_kc = n_kc / n_k, P_c that of
                                           all clients together)
    PSI_k = sum_c t_kc                    (Eq. 1)
    groups: K-means on the standardised [PSI_k, t_k1, ..., t_kC],
            for the number of groups of best silhouette

Where we differ:
    - The paper does not say what a class without samples contributes. Probabilities get 1e-6 on both sides,
      as in the authors' code, and that number sets the scale of the index (``smoothing="laplace"`` depends
      less on it).
    - Beyond 200 clients at most 20 groups are tried, where the paper tries all up to K - 1 (``max_groups``).
    - Equal silhouettes go to fewer groups.
    - K-means takes the best of ten starts; the authors' code makes one (``starts=1``), after which groups may
      be worse, and others with each seed.
    - A round's q K clients are drawn from everybody, and each trains for its own group, so that a group may
      go a round without training. ``sampling="group"`` draws the share q of each group, at least one client:
      with many groups far more clients train than of methods it is compared with.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import (
    Grouping,
    Memory,
    PlacesNewcomers,
    Profile,
    Sampling,
    Summarises,
    UserError,
    above,
    at_least,
    between,
    feature_bins,
    feature_psi,
    join_largest,
    kmeans_by_silhouette,
    psi_features,
    quantity_terms,
    register,
    side_by_side,
    standardise,
    wpsi,
)

STABLE = 0.1  # credit scoring calls a population stable below this index


@register
@dataclass(frozen=True)
class ClustPsiPfl(Grouping, PlacesNewcomers, Summarises):
    """Groups clients by how each class deviates from the federation's share; one model per group."""

    smoothing: Literal["eps", "laplace"] = "eps"  # add eps to probabilities, or half a sample to counts
    eps: Annotated[float, above(0)] = 1e-6  # stands for a missing class; sets the scale of the index
    signed: bool = False  # tell a surplus of a class from a shortage
    gate: bool = False  # ignore what IID sampling would give too: one group when nothing else is left
    max_groups: Annotated[int, at_least(2)] | None = None  # most tried; None: clients - 1, 20 beyond 200
    features: Annotated[int, between(0, 1000)] = 0  # bins of each attribute to group by too; 0: labels alone
    quantity: bool = False  # group by the clients' shares of all samples too
    starts: Annotated[int, between(1, 1000)] = 10  # of K-means, of which the best is taken
    sampling: Sampling = "all"  # draw one cohort from everybody, or one from each group

    def uses(self) -> frozenset[str]:
        return frozenset({"counts", "summary"} if self.features else {"counts"})

    def check(self, profile: Profile) -> None:
        if self.features == 1:
            raise UserError(f"{self.name}: features=1 is one bin for all: give at least 2, or 0")

    def summarise(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """[F, bins]: where each attribute lies; the attributes of an example weigh 1 together."""
        cell, bins = feature_bins(x, self.features), self.features
        width = cell.shape[1]
        cell = cell + bins * torch.arange(width)
        return torch.bincount(cell.flatten(), minlength=width * bins).view(width, bins).double() / width

    def init_grouping(self, profile: Profile) -> Memory:
        counts = profile.known_counts(self.name).numpy()
        known = np.flatnonzero((counts.sum(1) > 0) & (profile.size.numpy() > 0))
        bins = None
        if self.features:
            summary = profile.known_summary(self.name).numpy()
            bins = summary[known] * summary.shape[1]  # every attribute's counts again
        labels = self.groups_of(counts[known], profile.seed, bins)
        return {"group": torch.from_numpy(join_largest(labels, known, len(counts)))}

    def groups_of(self, counts: np.ndarray, seed: int, bins: np.ndarray | None = None) -> np.ndarray:
        """The group of each client, by K-means with the best silhouette; ``bins`` is ``[N, F, bins]``."""
        size, kinds = quantity_terms(counts.sum(1)), []
        if not (self.gate and self.is_stable(counts)):
            kinds.append(psi_features(counts, self.smoothing, self.eps, signed=self.signed))
        if bins is not None and not (self.gate and self.are_stable(bins)):
            kinds.append(np.column_stack([feature_psi(bins).mean(axis=1), feature_psi(bins, self.signed)]))
        if self.quantity and not (self.gate and size.sum() < STABLE):
            kinds.append(size[:, None])
        if not kinds:
            return np.zeros(len(counts), dtype=np.int64)
        most = self.max_groups or (len(counts) - 1 if len(counts) <= 200 else 20)
        return kmeans_by_silhouette(side_by_side(*kinds), most, seed, starts=self.starts).labels

    def is_stable(self, counts: np.ndarray) -> bool:
        """Whether the deviation is that of chance: under IID sampling WPSI is about (C-1)(K-1)/N."""
        clients, classes = counts.shape
        chance = (classes - 1) * (clients - 1) / counts.sum()
        return wpsi(counts, self.smoothing, self.eps) < max(STABLE, 3 * chance)

    def are_stable(self, bins: np.ndarray) -> bool:
        """The same of the attributes, on average over them."""
        size = bins[:, 0].sum(axis=1)
        chance = (bins.shape[2] - 1) * (len(bins) - 1) / size.sum()
        return float(size @ feature_psi(bins).mean(axis=1) / size.sum()) < max(STABLE, 3 * chance)

    def place(self, group: Tensor, counts: Tensor, newcomers: Tensor) -> Tensor | None:
        """From the centre of each group's features, scaled as the members' were."""
        if self.features or self.quantity:
            return None  # label counts do not tell
        known = counts.numpy()
        members = standardise(psi_features(known, self.smoothing, self.eps, signed=self.signed))
        rows = psi_features(newcomers.numpy(), self.smoothing, self.eps, signed=self.signed, reference=known)
        scaled, own = torch.from_numpy((rows - members.mean) / members.sd), torch.from_numpy(members.features)
        return torch.cdist(scaled, torch.stack([own[group == number].mean(0) for number in group.unique()]))
