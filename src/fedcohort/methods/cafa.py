"""CAFA: Zhang et al., "Optimizing Federated Learning on Non-IID Data with Clustering and Model Sharing".

Equation:
    wK_k = |cluster of k| / K             (Eq. 8; K-means on label shares)
    A_k = sum_j a_kj s_j / sum_j s_j      (Eq. 9; a_kj: accuracy of x_k on the
                                           s_j validation samples of client j)
    x <- sum_k wK_k A_k x_k / sum_k wK_k A_k                        (Eq. 11)

Where we differ:
    - Models are averaged whole, BatchNorm statistics by the same weights (``bn="samples"``: by samples, as by
      other averagings here).
    - ``variant`` leaves out one of the two factors.
    - A model is also scored on its own client's validation data, as Algorithm 1 has it; the prose speaks of
      other clients' models (``own=False``).
    - The number of clusters is that of the best silhouette, as the paper has it; its code fixes six
      (``clusters=6``).
    - K-means takes the best of ten starts; how many the paper makes is not said (``starts``).
    - Where no model is right about anything, clusters alone decide; the equation would divide by zero.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import (
    Averaging,
    Memory,
    Profile,
    Round,
    TellsIID,
    Updates,
    UserError,
    at_least,
    between,
    largest,
    register,
    share_clusters,
)


@register
@dataclass(frozen=True)
class CAFA(Averaging, TellsIID):
    """Weighs a model by the size of its client's cluster (CBCC) and its accuracy on the others' data
    (ABFA)."""

    own: bool = True  # score a model on its own client's validation data too
    clusters: Annotated[int, at_least(1)] | None = None  # None: the number with the best silhouette
    starts: Annotated[int, between(1, 1000)] = 10  # of K-means, of which the best is taken
    variant: Literal["cafa", "cbcc", "abfa"] = "cafa"  # both factors, clusters alone, or accuracy alone
    bn: Literal["weights", "samples"] = "weights"  # what BatchNorm statistics are averaged by

    def uses(self) -> frozenset[str]:
        asks = {"cbcc": {"counts"}, "abfa": {"validation", "cross_accuracy"}}
        return frozenset(asks.get(self.variant, asks["cbcc"] | asks["abfa"]))

    def check(self, profile: Profile) -> None:
        if self.variant != "cbcc" and not profile.held_out.any():
            raise UserError(
                "cafa needs validation data at the clients: set split.validation, for example to 0.2"
            )

    def init_server(self, profile: Profile) -> Memory:
        """Each client's cluster, -1 where nothing is known, and the share of all clients that are in it."""
        if self.variant == "abfa":
            return {"share": torch.ones(profile.num_clients, dtype=torch.float64)}
        counts = profile.known_counts(self.name).numpy() * (profile.size.numpy() > 0)[:, None]
        cluster = share_clusters(counts, self.clusters, profile.seed, starts=self.starts)
        known = cluster >= 0
        share = np.full(len(counts), 1 / known.sum())  # nothing known: a cluster of one
        share[known] = np.bincount(cluster[known])[cluster[known]] / known.sum()
        return {"share": torch.from_numpy(share), "cluster": torch.from_numpy(cluster)}

    def iid(self, memory: Memory) -> Tensor | None:
        """Eq. 7: the largest cluster."""
        return memory["cluster"] == largest(memory["cluster"].numpy()) if "cluster" in memory else None

    def statistics(self, weights: Tensor, updates: Updates) -> Tensor:
        return weights if self.bn == "weights" else updates.shares

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        share = memory["share"][updates.ids]
        if self.variant == "cbcc":
            return share / share.sum()
        assert updates.cross is not None  # noqa: S101  # this part asked for both
        assert updates.cross_size is not None  # noqa: S101
        trust = torch.where(updates.cross_size > 0, updates.cross_size, 0).double().expand(len(updates), -1)
        if not self.own:
            trust = trust * (1 - torch.eye(len(updates)))
        scores = updates.cross.double().nan_to_num()
        accuracy = (scores * trust).sum(1) / trust.sum(1).clamp(min=1)  # Eq. 9
        combined = share * accuracy  # Eq. 11
        combined = combined if combined.sum() > 0 else share
        return combined / combined.sum()
