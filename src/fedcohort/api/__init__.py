"""All that a file of your own imports, be it a method, a data source, a partition or a network.

>>> from fedcohort.api import Averaging, Memory, Round, Updates, register

Everything here has a page in the reference, and keeps its name from version to version.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from fedcohort.core import method
from fedcohort.core.deltas import combine
from fedcohort.core.latency import latencies
from fedcohort.core.profile import Local, Privacy, Profile
from fedcohort.core.records import (
    Anchor,
    Clients,
    Ids,
    LogitMap,
    Memory,
    Merge,
    Phase,
    Round,
    Sampling,
    Trained,
    Updates,
    View,
    mean_memory,
)
from fedcohort.core.roles import (
    Adaptation,
    Aggregator,
    Averaging,
    Grouping,
    Objective,
    Part,
    Selector,
    ServerOptimiser,
    Transform,
)
from fedcohort.core.roles.optional import (
    Asks,
    Broadcasts,
    Freezes,
    Hides,
    Judges,
    Merges,
    PlacesNewcomers,
    Polls,
    Rations,
    Rehearses,
    Serves,
    Summarises,
    Tailors,
    Tells,
    TellsIID,
)
from fedcohort.data.columns import Column, as_numbers, as_words, client_column, label_column
from fedcohort.data.dataset import Dataset
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import DataPath, HubPath, Places, Remote
from fedcohort.data.partition import PARTITIONS, Domain, Partition, Partitioner, Rows
from fedcohort.data.partition._dealing import deal_counts, rows_by_client
from fedcohort.data.preparation import Preparation
from fedcohort.data.scaling import ScaleRule
from fedcohort.data.sources import SOURCES, Source
from fedcohort.data.tables import TableFormat, read_table
from fedcohort.models import MODELS, ImageModel, Model, TextModel
from fedcohort.models.flat import Flat, Weights
from fedcohort.models.last_layer import last_layer
from fedcohort.stats import clustering, gaussian, interaction
from fedcohort.stats.attribute_psi import feature_psi, quantity_terms
from fedcohort.stats.clustering import (
    bipartition,
    by_mean,
    capped_groups,
    cosines,
    dbscan_groups,
    has_company,
    join_largest,
    kmeans_by_silhouette,
    kmeans_groups,
    kmedoids_groups,
    optics_groups,
    separation,
)
from fedcohort.stats.entropy import EQUAL, entropy
from fedcohort.stats.histograms import client_space, feature_bins, label_histograms
from fedcohort.stats.label_distances import hellinger_to_pool, wpsi
from fedcohort.stats.label_groups import largest, psi_features, share_clusters, side_by_side, standardise
from fedcohort.util.errors import UserError
from fedcohort.util.keyed import generator, numpy_generator
from fedcohort.util.settings import above, at_least, at_most, below, between, nearest, tune

__all__ = [
    "EQUAL", "Adaptation", "Aggregator", "Anchor", "Asks", "Averaging", "Broadcasts", "Clients", "Column",
    "DataPath", "Dataset", "Domain", "Flat", "Freezes", "Grouping", "Hides", "HubPath", "Ids", "ImageModel",
    "Judges", "Local", "LogitMap", "Memory", "Merge", "Merges", "Model", "Objective", "Part", "Partition",
    "Partitioner", "Phase", "Places", "PlacesNewcomers", "Polls", "Preparation", "Privacy", "Profile",
    "Rations", "Rehearses", "Remote", "Round", "Rows", "Sampling", "ScaleRule", "Selector", "ServerOptimiser",
    "Serves", "Source", "Summarises", "TableFormat", "Tailors", "Tells", "TellsIID", "TextModel", "Trained",
    "Transform", "Updates", "UserError", "View", "Weights", "above", "as_numbers", "as_words", "at_least",
    "at_most", "below", "between", "bipartition", "by_mean", "capped_groups", "client_column", "client_space",
    "clustering", "combine", "cosines", "dbscan_groups", "deal_counts", "encode_labels", "entropy",
    "feature_bins", "feature_psi", "gaussian", "generator", "has_company", "hellinger_to_pool", "interaction",
    "join_largest", "kmeans_by_silhouette", "kmeans_groups", "kmedoids_groups", "label_column",
    "label_histograms", "largest", "last_layer", "latencies", "mean_memory", "nearest", "numpy_generator",
    "optics_groups", "psi_features", "quantity_terms", "read_table", "register", "rows_by_client",
    "separation", "share_clusters", "side_by_side", "standardise", "tune", "wpsi",
]  # fmt: skip

C = TypeVar("C", bound=type[Any])


def register(cls: C) -> C:
    """Class decorator: the class is found by the name of its file, as the kind of thing that it is."""
    kinds: tuple[tuple[type, Callable[[C], C]], ...] = (
        (Part, method.register),
        (Partitioner, PARTITIONS.register),
        (Model, MODELS.register),
    )
    return next((known for kind, known in kinds if issubclass(cls, kind)), SOURCES.register)(cls)
