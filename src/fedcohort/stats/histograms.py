"""Where a client's features lie: histograms of them, of each label's alone, P(X|y), and how far two clients'
histograms are apart."""

import numpy as np
import torch
from torch import Tensor

from fedcohort.stats.clustering import Metric
from fedcohort.stats.label_distances import hellinger_matrix, hellinger_points, proportions

BINS = 20  # of a feature, where all features of a label are counted together


def feature_bins(x: Tensor, bins: int) -> Tensor:
    """[n, F]: the bin of each feature. Data sources standardise numbers, so bins are equally likely under a
    standard normal, whatever the data: clients can count without asking each other."""
    bounds = torch.special.ndtri(torch.arange(1, bins, dtype=torch.float64) / bins).to(x.dtype)
    return torch.bucketize(x.flatten(1).contiguous(), bounds)


def label_histograms(x: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """[C, bins]: of each label, where the features lie; the features of an example weigh 1 together."""
    cell = feature_bins(x, BINS) + BINS * y[:, None]
    total = torch.bincount(cell.flatten(), minlength=num_classes * BINS)
    return total.view(num_classes, BINS).double() / max(1, cell.shape[1])


def client_space(table: np.ndarray, points: bool = True) -> tuple[np.ndarray, Metric]:
    """Where clients lie to be clustered: by label counts ``[N, C]`` as points whose distance is Hellinger's,
    or without ``points`` as these distances; by histograms of each label ``[N, C, bins]`` as distances."""
    if table.ndim == 3:
        return histogram_distances(table), "precomputed"
    if points:
        return hellinger_points(table), "euclidean"
    return hellinger_matrix(proportions(table)), "precomputed"


def histogram_distances(table: np.ndarray) -> np.ndarray:
    """[N, N]: mean Hellinger distance over the labels that at least one of two clients holds; 1 for those
    that only one does. ``table`` is ``[N, C, bins]``.
    """
    total = np.zeros((len(table), len(table)))
    shared = np.zeros_like(total)
    for label in range(table.shape[1]):
        mass = table[:, label].sum(1)
        share = table[:, label] / np.maximum(mass, np.finfo(float).tiny)[:, None]
        held = mass > 0
        both, either = np.outer(held, held), held[:, None] | held[None]
        total += np.where(both, hellinger_matrix(share), either)
        shared += either
    return total / np.maximum(shared, 1)
