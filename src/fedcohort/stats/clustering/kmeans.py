"""K-means, for a number of groups that is given or found by the silhouette, and with a capacity."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.stats.clustering.labels import Labels, relabel, reproducible, state
from fedcohort.stats.metrics import weighted_silhouette
from fedcohort.util.keyed import numpy_generator

SAMPLE = 2000  # beyond this many distinct points the silhouette is the mean over a fixed sample of them
STARTS, MANY = 10, 10_000  # K-means starts; a single one beyond MANY points
ROUNDS = 100  # of assignment and means, at most, where groups have a capacity


class Choice(NamedTuple):
    """The grouping that won, and the silhouette of every number of groups that was tried."""

    labels: Labels
    k: int
    scores: dict[int, float]  # empty when there was nothing to choose


def kmeans_groups(features: ArrayLike, groups: int, seed: int, starts: int = STARTS) -> Labels:
    """K-means++ with ``groups`` centres, or as many as there are distinct rows; the best of ``starts``."""
    points, weights, inverse = _distinct(np.asarray(features, dtype=np.float64))
    if groups <= 1 or len(points) <= 1:
        return np.zeros(len(inverse), dtype=np.int64)
    with reproducible():
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
    with reproducible():
        for k in range(2, most + 1):
            labels = _kmeans(points, weights, k, seed, starts)
            scores[k] = weighted_silhouette(distances, labels[sample], weights[sample])
            if best.k == 1 or scores[k] > scores[best.k] + tolerance:
                best = Choice(labels, k, scores)
    return Choice(relabel(best.labels[inverse]), best.k, scores)


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
    model = KMeans(k, n_init=starts if len(points) <= MANY else 1, random_state=state(seed, "kmeans"))
    return model.fit_predict(points, sample_weight=weights).astype(np.int64)


def _sampled_distances(points: NDArray[np.float64], seed: int) -> tuple[Labels, NDArray[np.float64]]:
    """Distances of the points the silhouette is averaged over: one matrix serves every number of groups."""
    from scipy.spatial.distance import pdist, squareform

    sample = np.arange(len(points))
    if len(points) > SAMPLE:
        sample = np.sort(numpy_generator(seed, "silhouette").choice(len(points), SAMPLE, replace=False))
    return sample, squareform(pdist(points[sample]))
