"""Paired tests and their correction, by hand."""

import math

import numpy as np
import pytest

from fedcohort.stats.paired import holm, paired


def test_paired_differences_by_hand() -> None:
    """Differences 1, 2, 3: mean 2, error 1/sqrt(3), t = 3.4641 with two degrees of freedom.

    The density of t with two degrees integrates to p = 1 - t / sqrt(2 + t^2) = 0.0742; the interval reaches
    4.30265 errors to each side.
    """
    result = paired([3, 5, 7], [2, 3, 4])
    assert result.mean == 2
    assert result.p == pytest.approx(1 - math.sqrt(12 / 14))
    assert result.high - result.mean == pytest.approx(4.30265 / math.sqrt(3), rel=1e-5)
    assert paired([1, 2, 3], [1, 2, 3]).p == 1
    assert math.isnan(paired([2, 3, 4], [1, 2, 3]).p)


def test_holm_by_hand() -> None:
    """0.01 * 3, then 0.03 * 2, then 0.04 * 1 raised to the one before."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1, 1]
    assert np.isnan(holm([math.nan, 0.02])).tolist() == [True, False]
