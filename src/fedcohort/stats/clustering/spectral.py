"""Spectral clustering of an affinity, and FedGWC's affinities of clients."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.stats.clustering.labels import Labels, relabel, reproducible, state
from fedcohort.stats.metrics import davies_bouldin

Assign = Literal["cluster_qr", "kmeans"]  # how spectral clustering gives labels


def spectral_by_davies_bouldin(
    affinity: ArrayLike,
    max_groups: int,
    min_size: int,
    seed: int,
    space: Literal["rows", "embedding"] = "rows",
    assign: Assign = "cluster_qr",
) -> Labels:
    """Spectral clustering into 2, 3, ... groups of at least ``min_size``: that of the lowest Davies-Bouldin
    score of the rows of ``affinity``, or of its spectral embedding; a single group if no score is below
    one."""
    table = np.asarray(affinity, dtype=np.float64)
    best, score = np.zeros(len(table), dtype=np.int64), 1.0
    for count in range(2, min(max_groups, len(table) - 1) + 1):
        labels = spectral_groups(table, count, seed, assign)
        if np.bincount(labels).min() < min_size or labels.max() == 0:
            continue
        points = table if space == "rows" else spectral_embedding(table, count, seed)
        if (candidate := davies_bouldin(points, labels)) < score:
            best, score = labels, candidate
    return best


def spectral_groups(affinity: ArrayLike, groups: int, seed: int, assign: Assign = "cluster_qr") -> Labels:
    """Spectral clustering of a similarity matrix; labels by pivoted QR, which draws nothing at random, or by
    k-means in the embedding."""
    from sklearn.cluster import SpectralClustering

    table = np.asarray(affinity, dtype=np.float64)
    if groups <= 1 or groups >= len(table):
        return np.zeros(len(table), dtype=np.int64) if groups <= 1 else np.arange(len(table))
    model = SpectralClustering(
        groups, affinity="precomputed", assign_labels=assign, random_state=state(seed, "spectral")
    )
    with reproducible():
        return relabel(model.fit_predict(table))


def spectral_embedding(affinity: NDArray[np.float64], dimensions: int, seed: int) -> NDArray[np.float64]:
    """Points whose closeness is the affinity, as far as so many dimensions can tell."""
    from sklearn.manifold import SpectralEmbedding

    model = SpectralEmbedding(dimensions, affinity="precomputed", random_state=state(seed, "spectral"))
    with reproducible():
        return np.asarray(model.fit_transform(affinity))


def upv_distance(interaction: ArrayLike) -> NDArray[np.float64]:
    """Squared distance of rows k and j of a square matrix, entries k and j left out (FedGWC's unbiased view).

    With q_k = |M_k|² and E_kj = (M_kj - M_jj)²: D = q1ᵀ + 1qᵀ - 2MMᵀ - E - Eᵀ. Only differences within a
    column matter, so columns are centred first, which avoids cancellation. Pass the transpose for columns.
    """
    m = np.asarray(interaction, dtype=np.float64)
    m = m - m.mean(axis=0)
    gram, own = m @ m.T, (m - np.diag(m)) ** 2
    q = np.diag(gram)
    d = np.clip(q[:, None] + q[None, :] - 2 * gram - own - own.T, 0.0, None)
    np.fill_diagonal(d, 0.0)
    return d


def perceived_alike(interaction: ArrayLike, beta: float) -> NDArray[np.float64]:
    """FedGWC's affinity of clients, whose views of each other are the rows: a kernel of their distances."""
    return np.exp(-beta * upv_distance(interaction))


def stretched_alike(interaction: ArrayLike, beta: float) -> NDArray[np.float64]:
    """The same as its authors' code has it: of views stretched to [0, 1], and nobody like itself."""
    views = np.asarray(interaction, dtype=np.float64)
    views = (views - views.min()) / max(float(np.ptp(views)), 1e-8)
    return perceived_alike(views, beta) - np.eye(len(views))
