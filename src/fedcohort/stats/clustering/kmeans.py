"""K-means, for a number of groups that is given or found by the silhouette, and with a capacity."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.stats.clustering.labels import Labels, nearest, relabel, reproducible, some_rows, state
from fedcohort.stats.clustering.remembered import remembered
from fedcohort.stats.metrics import weighted_silhouette

SAMPLE = 2000  # beyond this many distinct points the silhouette is the mean over a fixed sample of them
MANY = (
    10_000  # beyond this many points centres are those of a fixed sample, and every point joins the nearest
)
STARTS = 10
ROUNDS = 100  # of assignment and means, at most, where groups have a capacity


class ChosenGroups(NamedTuple):
    """The grouping that won, and the silhouette of every number of groups that was tried."""

    labels: Labels
    k: int
    scores: dict[int, float]  # empty when there was nothing to choose


def kmeans_groups(features: ArrayLike, groups: int, seed: int, starts: int = STARTS) -> Labels:
    """K-means++ with ``groups`` centres, or as many as there are distinct rows; the best of ``starts``."""
    table = np.asarray(features, dtype=np.float64)
    rows = some_rows(len(table), MANY, seed, "kmeans", "K-means")
    points, weights, inverse = _distinct(table[rows])
    if groups <= 1 or len(points) <= 1:
        return np.zeros(len(table), dtype=np.int64)
    with reproducible():
        labels = _kmeans(points, weights, min(groups, len(points)), seed, starts)
        return _everybody(table, rows, labels[inverse])


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


@remembered
def kmeans_by_silhouette(
    features: ArrayLike,
    max_groups: int | None,
    seed: int,
    tolerance: float = 1e-9,
    starts: int = STARTS,
    exact: int = MANY,
) -> ChosenGroups:
    """K-means for 2, 3, ... groups; the smallest number whose mean silhouette no other exceeds.

    At most ``max_groups`` and K-1 are tried (None: K-1). Up to two rows, or identical rows, are one group.
    More groups than distinct rows would return the same grouping again, so the search ends there. Of more
    than ``exact`` rows a fixed sample of that size is searched, and every row joins the nearest mean.
    """
    table = np.asarray(features, dtype=np.float64)
    clients, rows = len(table), some_rows(len(table), exact, seed, "kmeans", "K-means")
    points, weights, inverse = _distinct(table[rows])
    most = min(clients - 1, len(points), clients if max_groups is None else max_groups)
    best, scores = ChosenGroups(np.zeros(clients, dtype=np.int64), 1, {}), {}
    if len(points) < 2 or most < 2:
        return best
    sample, distances = _sampled_distances(points, seed)
    with reproducible():
        for k in range(2, most + 1):
            labels = _kmeans(points, weights, k, seed, starts)
            scores[k] = weighted_silhouette(distances, labels[sample], weights[sample])
            if best.k == 1 or scores[k] > scores[best.k] + tolerance:
                best = ChosenGroups(labels, k, scores)
        return ChosenGroups(_everybody(table, rows, best.labels[inverse]), best.k, scores)


def _everybody(table: NDArray[np.float64], rows: Labels, labels: Labels) -> Labels:
    """The group of every row, from those of some: the one whose mean is nearest."""
    if len(rows) == len(table):
        return relabel(labels)
    means = np.stack([table[rows[labels == k]].mean(axis=0) for k in np.unique(labels)])
    return relabel(nearest(table, means)[0])


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
    model = KMeans(k, n_init=starts, random_state=state(seed, "kmeans"))
    return model.fit_predict(points, sample_weight=weights).astype(np.int64)


def _sampled_distances(points: NDArray[np.float64], seed: int) -> tuple[Labels, NDArray[np.float64]]:
    """Distances of the points the silhouette is averaged over: one matrix serves every number of groups."""
    from scipy.spatial.distance import pdist, squareform

    sample = some_rows(len(points), SAMPLE, seed, "silhouette")
    return sample, squareform(pdist(points[sample]))
