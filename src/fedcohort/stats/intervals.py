"""How sure a number is: 95 % intervals of a share and of a mean over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05


class Interval(NamedTuple):
    low: float
    high: float


def of_share(right: float, total: float) -> Interval:
    """Wilson's, of a share of samples."""
    from scipy.stats import binomtest

    found = binomtest(round(right), round(total)).proportion_ci(method="wilson")
    return Interval(float(found.low), float(found.high))


def of_mean(values: Sequence[float]) -> Interval:
    """Student's, of the mean of at least two values."""
    from scipy.stats import t

    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
    reach = error * float(t.ppf(1 - LEVEL / 2, len(values) - 1))
    return Interval(mean - reach, mean + reach)
