"""How sure a number is: 95 % intervals of a share and of a mean over seeds."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

LEVEL = 0.05
NORMAL = NormalDist().inv_cdf(1 - LEVEL / 2)


class Interval(NamedTuple):
    low: float
    high: float


def of_share(right: float, total: float) -> Interval:
    """Wilson's, of a share of samples; of none, anything may be true."""
    if not total > 0:
        return Interval(0.0, 1.0)
    share, square = min(max(right / total, 0.0), 1.0), NORMAL**2 / total
    centre, reach = share + square / 2, NORMAL * sqrt(share * (1 - share) / total + square / total / 4)
    return Interval(max((centre - reach) / (1 + square), 0.0), min((centre + reach) / (1 + square), 1.0))


def of_mean(values: Sequence[float]) -> Interval:
    """Student's, of the mean of at least two values."""
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = error * float(stdtrit(len(values) - 1, 1 - LEVEL / 2))
    return Interval(mean - reach, mean + reach)
