"""Which clients belong together, as two published readings of the same label counts see it.

Clust-PSI-PFL runs K-means on PSI features, FedLECC runs OPTICS on Hellinger distances. Each suggestion has
its silhouette in its own space, and in Hellinger space too, where the two can be compared.
"""

import warnings
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.stats.clustering import (
    EXACT,
    MANY,
    SAMPLE,
    STARTS,
    Labels,
    kmeans_by_silhouette,
    kmeans_groups,
    optics_groups,
    some_rows,
)
from fedcohort.stats.label_distances import (
    EPS,
    Array,
    Smoothing,
    counts_array,
    hellinger_points,
    proportions,
    psi_signed_terms,
    psi_terms,
)
from fedcohort.stats.metrics import silhouette


class Standardised(NamedTuple):
    """Features with mean 0 and deviation 1 per column, and what a new client's row needs to join them."""

    features: Array
    mean: Array
    sd: Array


@dataclass(frozen=True, eq=False)
class Suggestion:
    """One reading's groups; ``labels`` has -1 for clients without samples."""

    reading: str
    rule: str
    labels: Labels
    silhouette: float  # in the space the reading clusters in; NaN when undefined
    label_silhouette: float  # in Hellinger space, comparable between readings
    tried: dict[int, float] = field(default_factory=dict)  # silhouette of every number of groups that was

    @property
    def groups(self) -> int:
        return int(self.labels.max(initial=-1)) + 1

    @property
    def sizes(self) -> list[int]:
        """How many clients each group holds."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.groups).tolist()


def psi_features(
    counts: ArrayLike,
    smoothing: Smoothing = "eps",
    eps: float = EPS,
    signed: bool = False,
    reference: ArrayLike | None = None,
) -> Array:
    """Clust-PSI-PFL's features before scaling: PSI and its C terms, K x (C+1).

    ``signed`` gives each term the direction of the deviation, which the paper's features lose.
    """
    terms = psi_terms(counts, smoothing, eps, reference=reference)
    total = terms.sum(axis=1)
    if signed:
        terms = psi_signed_terms(counts, smoothing, eps, reference=reference)
    return np.column_stack([total, terms])


def standardise(features: ArrayLike) -> Standardised:
    """Z-scores per column with the population deviation; a constant column stays at 0."""
    table = np.asarray(features, dtype=np.float64)
    mean, sd = table.mean(axis=0), table.std(axis=0)
    sd = np.where(sd > 1e-12 * np.maximum(np.abs(mean), 1e-300), sd, 1.0)  # rounding noise is not a deviation
    return Standardised((table - mean) / sd, mean, sd)


def side_by_side(*kinds: ArrayLike) -> Array:
    """Standardised features of several kinds; a kind weighs the same however many columns it has."""
    scaled = [standardise(kind).features for kind in kinds]
    return scaled[0] if len(scaled) == 1 else np.hstack([part / np.sqrt(part.shape[1]) for part in scaled])


def signed_groups(
    counts: ArrayLike, seed: int, max_groups: int | None, smoothing: Smoothing = "eps", eps: float = EPS
) -> Labels:
    """The groups of ``clust_psi_pfl(signed=True)``; -1 for clients without samples."""
    table = counts_array(counts)
    held = table.any(axis=1)
    features = standardise(psi_features(table[held], smoothing, eps, signed=True)).features
    labels = np.full(len(table), -1, dtype=np.int64)
    labels[held] = kmeans_by_silhouette(features, max_groups, seed).labels
    return labels


def share_clusters(
    counts: ArrayLike, clusters: int | None, seed: int, most: int | None = None, starts: int = STARTS
) -> Labels:
    """CAFA's clusters, by K-means on label shares: as many as asked for, or the number (up to ``most``) with
    the best silhouette; -1 for clients without samples."""
    table = counts_array(counts)
    held = table.any(axis=1)
    shares = table[held] / table[held].sum(axis=1, keepdims=True)
    labels = np.full(len(table), -1, dtype=np.int64)
    if clusters is None:
        labels[held] = kmeans_by_silhouette(shares, most, seed, starts=starts).labels
    else:
        labels[held] = kmeans_groups(shares, clusters, seed, starts)
    return labels


def largest(labels: Labels) -> int:
    """The group of most clients, -1 aside; of equals the first."""
    return int(np.bincount(labels[labels >= 0]).argmax())


def suggest_groups(
    counts: ArrayLike, seed: int, max_groups: int | None, smoothing: Smoothing = "eps", eps: float = EPS
) -> tuple[Suggestion, ...]:
    """Both readings; clients without samples belong to no group."""
    table = counts_array(counts)
    held = np.flatnonzero(table.any(axis=1))
    rows = table[held]
    features, points = standardise(psi_features(rows, smoothing, eps)).features, hellinger_points(rows)
    sample = some_rows(len(rows), SAMPLE, seed, "silhouette")  # it is quadratic

    def suggestion(reading: str, rule: str, space: Array, labels: Labels) -> Suggestion:
        everyone = np.full(len(table), -1, dtype=np.int64)
        everyone[held] = labels
        own, shared = (silhouette(where[sample], labels[sample]) for where in (space, points))
        return Suggestion(reading, rule, everyone, own, shared)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the rules themselves tell of samples
        by_psi = kmeans_by_silhouette(features, max_groups, seed)
        by_density = optics_groups(points)
    of_psi = suggestion("clust_psi_pfl", _of("K-means on PSI features", rows, MANY), features, by_psi.labels)
    density = _of("OPTICS on Hellinger distances", rows, EXACT)
    return replace(of_psi, tried=by_psi.scores), suggestion("fedlecc", density, points, by_density)


def _of(rule: str, rows: Array, most: int) -> str:
    return f"{rule} of a sample of {most:,} clients" if len(rows) > most else rule


def share_silhouettes(counts: ArrayLike, seed: int, max_groups: int | None) -> dict[int, float]:
    """The silhouette of every number of clusters that CAFA would try: K-means on label shares.

    Empty beyond as many clients as a silhouette is computed of exactly, where a second search takes long.
    """
    table = counts_array(counts)
    held = table.any(axis=1)
    if held.sum() > SAMPLE:
        return {}
    return kmeans_by_silhouette(proportions(table[held]), max_groups, seed).scores
