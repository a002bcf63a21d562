"""Clustering as the methods share it: the same input and seed give the same groups.

Groups are numbered by first appearance (client 0 is always in group 0), noise becomes groups of one,
scikit-learn runs on one thread so that sums keep their order, and degenerate inputs (one client, identical
clients, fewer distinct points than groups) have an answer instead of a warning.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedcohort.stats.metrics import davies_bouldin, weighted_silhouette
from fedcohort.util.keyed import key_seed, numpy_generator

Assign = Literal["cluster_qr", "kmeans"]  # how spectral clustering gives labels
Labels = NDArray[np.int64]
Metric = Literal["euclidean", "precomputed"]

SAMPLE = 2000  # beyond this many distinct points the silhouette is the mean over a fixed sample of them
EXACT = 3000  # beyond this many points OPTICS runs on a sample, and the others join their nearest neighbour
STARTS, MANY = 10, 10_000  # K-means starts; a single one beyond MANY points
ROUNDS = 100  # of assignment and means, at most, where groups have a capacity
COLUMNS = 1 << 16  # of the vectors that are compared in double precision at a time


class Choice(NamedTuple):
    """The grouping that won, and the silhouette of every number of groups that was tried."""

    labels: Labels
    k: int
    scores: dict[int, float]  # empty when there was nothing to choose


def relabel(labels: ArrayLike) -> Labels:
    """Groups numbered by first appearance; every noise point (-1) becomes a group of its own."""
    names = np.array(labels, dtype=np.int64)
    noise = np.flatnonzero(names < 0)
    names[noise] = names.max(initial=0) + 1 + np.arange(noise.size)
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def kmeans_groups(features: ArrayLike, groups: int, seed: int, starts: int = STARTS) -> Labels:
    """K-means++ with ``groups`` centres, or as many as there are distinct rows; the best of ``starts``."""
    points, weights, inverse = _distinct(np.asarray(features, dtype=np.float64))
    if groups <= 1 or len(points) <= 1:
        return np.zeros(len(inverse), dtype=np.int64)
    with _reproducible():
        return relabel(_kmeans(points, weights, min(groups, len(points)), seed, starts)[inverse])


def capped_groups(features: ArrayLike, groups: int, most: int, seed: int) -> Labels:
    """K-means in which no group has more than ``most`` rows; ``groups * most`` must hold them all.

    Starts from the means of :func:`kmeans_groups`; each assignment is the one whose squared distances sum to
    the least, which takes seconds for a thousand rows and minutes for ten thousand.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    points = np.asarray(features, dtype=np.float64)
    count, labels, last = min(groups, len(points)), kmeans_groups(points, groups, seed), relabel([])
    for _ in range(ROUNDS):
        if np.array_equal(labels, last):
            break
        last, means = labels, np.stack([points[labels == k].mean(axis=0) for k in range(labels.max() + 1)])
        means = np.resize(means, (count, points.shape[1]))  # identical rows: the same mean several times
        places = np.repeat(cdist(points, means, "sqeuclidean"), most, axis=1)
        labels = relabel(linear_sum_assignment(places)[1] // most)
    return labels


def kmeans_by_silhouette(
    features: ArrayLike, max_groups: int | None, seed: int, tolerance: float = 1e-9, starts: int = STARTS
) -> Choice:
    """K-means for 2, 3, ... groups; the smallest number whose mean silhouette no other exceeds.

    At most ``max_groups`` and K-1 are tried (None: K-1). Up to two rows, or identical rows, are one group.
    More groups than distinct rows would return the same grouping again, so the search ends there.
    """
    points, weights, inverse = _distinct(np.asarray(features, dtype=np.float64))
    clients = len(inverse)
    most = min(clients - 1, len(points), clients if max_groups is None else max_groups)
    best, scores = Choice(np.zeros(clients, dtype=np.int64), 1, {}), {}
    if len(points) < 2 or most < 2:
        return best
    sample, distances = _sampled_distances(points, seed)
    with _reproducible():
        for k in range(2, most + 1):
            labels = _kmeans(points, weights, k, seed, starts)
            scores[k] = weighted_silhouette(distances, labels[sample], weights[sample])
            if best.k == 1 or scores[k] > scores[best.k] + tolerance:
                best = Choice(labels, k, scores)
    return Choice(relabel(best.labels[inverse]), best.k, scores)


def optics_groups(
    points: ArrayLike,
    min_samples: int = 2,
    xi: float = 0.05,
    metric: Metric = "euclidean",
    exact: int = EXACT,
) -> Labels:
    """OPTICS with the xi rule. ``points`` are vectors, or distances when ``metric="precomputed"``.

    Of more than ``exact`` vectors a fixed sample of that size is clustered. Each other point joins the
    cluster of its nearest sampled point if it lies no farther from it than that cluster's members reach,
    and is noise if not.
    """
    table = np.asarray(points, dtype=np.float64)
    if len(table) < max(min_samples, 2):
        return np.arange(len(table))
    if not (table if metric == "precomputed" else table - table[0]).any():
        return np.zeros(len(table), dtype=np.int64)  # no density to compare
    if metric == "precomputed" or len(table) <= exact:
        return relabel(_optics(table, min_samples, xi, metric)[0])
    sample = np.sort(numpy_generator(0, "optics").choice(len(table), exact, replace=False))
    labels, reach = _optics(table[sample], min_samples, xi, metric)
    nearest, distance = _nearest(table, table[sample])
    extent = np.array(
        [reach[(labels == k) & np.isfinite(reach)].max(initial=0.0) for k in range(labels.max() + 1)]
    )
    joined = labels[nearest]
    limit = np.append(extent, 0.0)[joined]  # the last is for noise (-1), which nobody joins
    everyone = np.where((joined >= 0) & (distance <= limit + 1e-12), joined, -1)
    everyone[sample] = labels
    return relabel(everyone)


def _optics(
    table: NDArray[np.float64], min_samples: int, xi: float, metric: Metric
) -> tuple[Labels, NDArray[np.float64]]:
    """Labels, -1 for noise, and the reachability of each point."""
    from sklearn.cluster import OPTICS

    with _reproducible(), np.errstate(divide="ignore", invalid="ignore"):  # duplicates lie at distance 0
        model = OPTICS(min_samples=min_samples, xi=xi, metric=metric).fit(table)
    return model.labels_.astype(np.int64), model.reachability_


def _nearest(table: NDArray[np.float64], sample: NDArray[np.float64]) -> tuple[Labels, NDArray[np.float64]]:
    """The nearest row of ``sample`` for each row of ``table``, and how far it is."""
    centre = sample.mean(axis=0)  # differences of small numbers lose less
    targets = sample - centre
    own = (targets**2).sum(axis=1)
    found, distance = np.empty(len(table), dtype=np.int64), np.empty(len(table))
    for start in range(0, len(table), 4096):
        rows = table[start : start + 4096] - centre
        squared = own - 2 * rows @ targets.T
        best = squared.argmin(axis=1)
        found[start : start + 4096] = best
        distance[start : start + 4096] = np.sqrt(((rows - targets[best]) ** 2).sum(axis=1))
    return found, distance


def dbscan_groups(
    points: ArrayLike, eps: float, min_samples: int = 2, metric: Metric = "euclidean"
) -> Labels:
    """DBSCAN with radius ``eps``."""
    from sklearn.cluster import DBSCAN

    with _reproducible():
        return relabel(
            DBSCAN(eps=eps, min_samples=min_samples, metric=metric).fit_predict(np.asarray(points))
        )


def kmedoids_groups(distances: ArrayLike, groups: int) -> Labels:
    """Every point goes to the nearest of the :func:`find_medoids`."""
    d = np.asarray(distances, dtype=np.float64)
    return relabel(d[:, find_medoids(d, groups)].argmin(axis=1))


def find_medoids(distances: ArrayLike, groups: int) -> Labels:
    """Partitioning around medoids: greedy start, then the best swap until none helps. No randomness.

    All swaps of a step are priced at once: taking in x saves every point its excess over x, and giving up
    medoid m sends its own points to x or to their second medoid.
    """
    d = np.asarray(distances, dtype=np.float64)
    medoids = _greedy_medoids(d, min(groups, len(d)))
    while 1 < len(medoids) < len(d):
        near = np.sort(d[:, medoids], axis=1)[:, :2]
        owner = np.eye(len(medoids))[d[:, medoids].argmin(axis=1)]
        gain = np.minimum(d - near[:, :1], 0)  # [point, x]: what taking in x changes while all medoids stay
        lost = np.minimum(d, near[:, 1:]) - near[:, :1] - gain  # [point, x]: more, if its own medoid goes
        change = gain.sum(axis=0)[:, None] + lost.T @ owner
        x, m = np.unravel_index(change.argmin(), change.shape)
        if change[x, m] >= -1e-12 * max(d.max(), 1e-300) * len(d):
            break
        medoids[m] = x
    return medoids


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
        groups, affinity="precomputed", assign_labels=assign, random_state=_state(seed, "spectral")
    )
    with _reproducible():
        return relabel(model.fit_predict(table))


def spectral_embedding(affinity: NDArray[np.float64], dimensions: int, seed: int) -> NDArray[np.float64]:
    """Points whose closeness is the affinity, as far as so many dimensions can tell."""
    from sklearn.manifold import SpectralEmbedding

    model = SpectralEmbedding(dimensions, affinity="precomputed", random_state=_state(seed, "spectral"))
    with _reproducible():
        return np.asarray(model.fit_transform(affinity))


def bipartition(similarity: ArrayLike, linkage: Literal["complete", "single"] = "complete") -> Labels:
    """Two groups by agglomeration. ``"single"`` minimises the greatest similarity across the cut."""
    from sklearn.cluster import AgglomerativeClustering

    table = np.asarray(similarity, dtype=np.float64)
    if len(table) < 2:
        return np.zeros(len(table), dtype=np.int64)
    return relabel(AgglomerativeClustering(2, metric="precomputed", linkage=linkage).fit_predict(1 - table))


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


def _distinct(features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], Labels]:
    """Distinct rows up to rounding noise, how often each occurs, and which one every row is."""
    offset = features - features[:1]
    spread, scale = np.abs(offset).max(initial=0.0), np.abs(features).max(initial=0.0)
    key = np.round(offset / spread, 9) + 0.0 if spread > 1e-12 * scale else np.zeros_like(features)
    _, first, inverse, count = np.unique(
        key, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return features[first], count.astype(np.float64), inverse.reshape(-1)


def _kmeans(
    points: NDArray[np.float64], weights: NDArray[np.float64], k: int, seed: int, starts: int
) -> Labels:
    from sklearn.cluster import KMeans

    if k == len(points):
        return np.arange(k)
    model = KMeans(k, n_init=starts if len(points) <= MANY else 1, random_state=_state(seed, "kmeans"))
    return model.fit_predict(points, sample_weight=weights).astype(np.int64)


def _sampled_distances(points: NDArray[np.float64], seed: int) -> tuple[Labels, NDArray[np.float64]]:
    """Distances of the points the silhouette is averaged over: one matrix serves every number of groups."""
    from scipy.spatial.distance import pdist, squareform

    sample = np.arange(len(points))
    if len(points) > SAMPLE:
        sample = np.sort(numpy_generator(seed, "silhouette").choice(len(points), SAMPLE, replace=False))
    return sample, squareform(pdist(points[sample]))


def _greedy_medoids(d: NDArray[np.float64], groups: int) -> Labels:
    medoids = [int(d.sum(axis=0).argmin())]
    while len(medoids) < groups:
        cost = np.minimum(d, d[:, medoids].min(axis=1, keepdims=True)).sum(axis=0)
        cost[medoids] = np.inf
        medoids.append(int(cost.argmin()))
    return np.array(medoids)


def _state(seed: int, purpose: str) -> int:
    return key_seed(seed, purpose) % 2**32  # scikit-learn takes 32 bits


@contextmanager
def _reproducible() -> Iterator[None]:
    """One thread, and no warnings about inputs whose answer we have decided on."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.filterwarnings("ignore", module="sklearn")
        yield


def by_mean(labels: Labels, values: NDArray[np.float64], tie: Labels) -> list[list[int]]:
    """The positions of each group's members in their given order; the group of highest mean value first, of
    equals that of the lowest ``tie``."""
    _, own, size = np.unique(labels, return_inverse=True, return_counts=True)
    mean = np.bincount(own, weights=values) / size
    first = np.full(len(size), len(tie) and tie.max())
    np.minimum.at(first, own, tie)
    order = np.lexsort((first, -mean.round(12)))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    positions = np.argsort(rank[own], kind="stable")
    return [part.tolist() for part in np.split(positions, np.cumsum(size[order])[:-1])] if len(own) else []


def join_largest(labels: Labels, rows: Labels, total: int) -> Labels:
    """Labels for ``total`` clients of which only ``rows`` were grouped; the others join the largest group."""
    largest = int(np.bincount(labels).argmax()) if len(labels) else 0
    everyone = np.full(total, largest, dtype=np.int64)
    everyone[rows] = labels
    return everyone
