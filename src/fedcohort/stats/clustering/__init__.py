"""Clustering as the methods share it: the same input and seed give the same groups.

Groups are numbered by first appearance (client 0 is always in group 0), noise becomes groups of one,
scikit-learn runs on one thread so that sums keep their order, and degenerate inputs (one client, identical
clients, fewer distinct points than groups) have an answer instead of a warning.
"""

from fedcohort.stats.clustering.density import EXACT, dbscan_groups, optics_groups
from fedcohort.stats.clustering.kmeans import (
    MANY,
    SAMPLE,
    STARTS,
    ChosenGroups,
    capped_groups,
    kmeans_by_silhouette,
    kmeans_groups,
)
from fedcohort.stats.clustering.labels import (
    Labels,
    Metric,
    by_mean,
    has_company,
    join_largest,
    relabel,
    some_rows,
)
from fedcohort.stats.clustering.linkage import bipartition, cosines, separation
from fedcohort.stats.clustering.medoids import find_medoids, kmedoids_groups
from fedcohort.stats.clustering.spectral import (
    Assign,
    perceived_alike,
    spectral_by_davies_bouldin,
    spectral_embedding,
    spectral_groups,
    stretched_alike,
    upv_distance,
)

__all__ = [
    "EXACT", "MANY", "SAMPLE", "STARTS", "Assign", "ChosenGroups", "Labels", "Metric", "bipartition",
    "by_mean", "capped_groups", "cosines", "dbscan_groups", "find_medoids", "has_company",
    "join_largest", "kmeans_by_silhouette", "kmeans_groups",
    "kmedoids_groups", "optics_groups", "perceived_alike", "relabel", "separation",
    "some_rows", "spectral_by_davies_bouldin", "spectral_embedding", "spectral_groups", "stretched_alike",
    "upv_distance",
]  # fmt: skip
