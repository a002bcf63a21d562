"""Two groups by agglomeration, and how far apart they are."""

from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedcohort.stats.clustering.labels import Labels, relabel

COLUMNS = 1 << 16  # of the vectors that are compared in double precision at a time


def bipartition(
    similarity: ArrayLike, linkage: Literal["complete", "single"] = "complete", apart: float | None = None
) -> Labels:
    """Two groups by agglomeration. ``"single"`` minimises the greatest similarity across the cut; all are in
    one group where their :func:`separation` would not be greater than ``apart``."""
    from sklearn.cluster import AgglomerativeClustering

    table = np.asarray(similarity, dtype=np.float64)
    if len(table) < 2:
        return np.zeros(len(table), dtype=np.int64)
    halves = AgglomerativeClustering(2, metric="precomputed", linkage=linkage).fit_predict(1 - table)
    labels = relabel(halves)
    together = apart is not None and separation(table, labels) <= apart
    return np.zeros_like(labels) if together else labels


def cosines(vectors: Tensor) -> NDArray[np.float64]:
    """Similarity of every two rows; 0 with one that is zero."""
    products = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for columns in vectors.split(COLUMNS, 1):
        products += columns.double() @ columns.double().T
    norms = products.diag().sqrt().clamp(min=1e-12)
    return (products / norms / norms[:, None]).clamp(-1, 1).numpy()


def separation(similarity: NDArray[np.float64], labels: Labels) -> float:
    """sqrt((1 - s) / 2), s the greatest similarity across two groups: 0 for a single one, 1 for opposites."""
    across = similarity[np.ix_(labels == 0, labels == 1)]
    return float(np.sqrt((1 - across.max()) / 2)) if across.size else 0.0
