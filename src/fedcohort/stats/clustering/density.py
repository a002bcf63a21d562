"""OPTICS and DBSCAN: groups where points are dense, and noise as groups of one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.stats.clustering.labels import Labels, Metric, nearest, relabel, reproducible, some_rows
from fedcohort.stats.clustering.remembered import remembered

EXACT = 3000  # beyond this many points OPTICS runs on a sample, and the others join their nearest neighbour


@remembered
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
    sample = some_rows(len(table), exact, 0, "optics", "OPTICS")
    labels, reach = _optics(table[sample], min_samples, xi, metric)
    closest, distance = nearest(table, table[sample])
    extent = np.array(
        [reach[(labels == k) & np.isfinite(reach)].max(initial=0.0) for k in range(labels.max() + 1)]
    )
    joined = labels[closest]
    limit = np.append(extent, 0.0)[joined]  # the last is for noise (-1), which nobody joins
    everyone = np.where((joined >= 0) & (distance <= limit + 1e-12), joined, -1)
    everyone[sample] = labels
    return relabel(everyone)


def _optics(
    table: NDArray[np.float64], min_samples: int, xi: float, metric: Metric
) -> tuple[Labels, NDArray[np.float64]]:
    """Labels, -1 for noise, and the reachability of each point."""
    from sklearn.cluster import OPTICS

    with reproducible(), np.errstate(divide="ignore", invalid="ignore"):  # duplicates lie at distance 0
        model = OPTICS(min_samples=min_samples, xi=xi, metric=metric).fit(table)
    return model.labels_.astype(np.int64), model.reachability_


def dbscan_groups(
    points: ArrayLike, eps: float, min_samples: int = 2, metric: Metric = "euclidean"
) -> Labels:
    """DBSCAN with radius ``eps``."""
    from sklearn.cluster import DBSCAN

    with reproducible():
        return relabel(
            DBSCAN(eps=eps, min_samples=min_samples, metric=metric).fit_predict(np.asarray(points))
        )
