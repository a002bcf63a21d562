"""Partitioning around medoids, from distances alone."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.stats.clustering.labels import Labels, relabel


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


def _greedy_medoids(d: NDArray[np.float64], groups: int) -> Labels:
    medoids = [int(d.sum(axis=0).argmin())]
    while len(medoids) < groups:
        cost = np.minimum(d, d[:, medoids].min(axis=1, keepdims=True)).sum(axis=0)
        cost[medoids] = np.inf
        medoids.append(int(cost.argmin()))
    return np.array(medoids)
