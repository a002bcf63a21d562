"""Whether two methods differ by more than luck of the seed: tests of differences on the same seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.stats.intervals import of_mean

SEEDS = 3  # fewest for a test: with two, an interval is nearly as wide as all accuracies


class Paired(NamedTuple):
    """How far a method is behind another on the same seeds."""

    seeds: int
    mean: float
    low: float  # of the 95 % interval of the mean
    high: float
    p: float  # paired t-test, two-sided


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Paired:
    """Student's t-test of differences between runs that share seed, data and partition."""
    from scipy.special import stdtr  # scipy.stats takes a second to import

    gaps = np.subtract(ours, theirs)
    mean, error = float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
    p = 1.0 if mean == 0 else float("nan")  # a constant difference: no test can judge it
    if error > 0:
        p = 2 * float(stdtr(len(gaps) - 1, -abs(mean) / error))
    return Paired(len(gaps), mean, *of_mean(gaps.tolist()), p)


def holm(p: Sequence[float]) -> list[float]:
    """P-values adjusted for having made several tests (Holm 1979)."""
    values = np.asarray(p, dtype=float)
    order, out = np.argsort(values), values.copy()
    known = int((~np.isnan(values)).sum())
    factors = np.maximum(known - np.arange(len(values)), 1)
    out[order] = np.minimum(np.maximum.accumulate(values[order] * factors), 1)
    return out.tolist()
