"""CAFA: Zhang et al., "Optimizing Federated Learning on Non-IID Data with Clustering and Model Sharing".

Equation:
    wK_k = |cluster of k| / K             (Eq. 8; K-means on label shares)
    A_k = sum_j a_kj s_j / sum_j s_j      (Eq. 9; a_kj: accuracy of x_k on the
                                           s_j validation samples of client j)
    x <- sum_k wK_k A_k x_k / sum_k wK_k A_k                        (Eq. 11)

Where we differ:
    - A model is also scored on its own client's validation data, as Algorithm 1 has it; the prose speaks of
      other clients' models (``own=False``).
    - The number of clusters is that of the best silhouette, as the paper has it; its code fixes six
      (``clusters=6``).
    - Where no model is right about anything, clusters alone decide; the equation would divide by zero.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedcohort.cluster import kmeans_by_silhouette, kmeans_groups
from fedcohort.core.method import register
from fedcohort.core.parts import Aggregator, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.settings import at_least
from fedcohort.errors import UserError


@register
@dataclass(frozen=True)
class CAFA(Aggregator):
    """Weighs a model by the size of its client's cluster (CBCC) and its accuracy on the others' data
    (ABFA)."""

    own: bool = True  # score a model on its own client's validation data too
    clusters: Annotated[int, at_least(1)] | None = None  # None: the number with the best silhouette

    def uses(self) -> frozenset[str]:
        return frozenset({"counts", "validation", "cross_accuracy"})

    def check(self, profile: Profile) -> None:
        if not profile.held_out.any():
            raise UserError(
                "cafa needs validation data at the clients: set split.validation, for example to 0.2"
            )

    def init_aggregator(self, profile: Profile) -> Memory:
        """The share of all clients that are in each client's cluster."""
        counts = profile.known_counts(self.name).numpy()
        known = np.flatnonzero((counts.sum(1) > 0) & (profile.size.numpy() > 0))
        frequencies = counts[known] / counts[known].sum(1, keepdims=True)
        if self.clusters is None:
            labels = kmeans_by_silhouette(frequencies, None, profile.seed).labels
        else:
            labels = kmeans_groups(frequencies, self.clusters, profile.seed)
        share = np.full(len(counts), 1 / len(known))  # nothing known: a cluster of one
        share[known] = np.bincount(labels)[labels] / len(known)
        return {"share": torch.from_numpy(share)}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        assert updates.cross is not None  # noqa: S101  # this part asked for both
        assert updates.cross_size is not None  # noqa: S101
        trust = torch.where(updates.cross_size > 0, updates.cross_size, 0).double().expand(len(updates), -1)
        if not self.own:
            trust = trust * (1 - torch.eye(len(updates)))
        scores = updates.cross.double().nan_to_num()
        accuracy = (scores * trust).sum(1) / trust.sum(1).clamp(min=1)  # Eq. 9
        share = memory["share"][updates.ids]
        combined = share * accuracy  # Eq. 11
        combined = combined if combined.sum() > 0 else share
        return combined / combined.sum()
