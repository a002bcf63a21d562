"""Intervals, beside published numbers and statsmodels' formulas worked by hand."""

import pytest

from fedcohort.stats.intervals import of_mean, of_share


def test_wilson() -> None:
    """81 of 263: Newcombe (1998), Table I, method 3."""
    assert of_share(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert of_share(0, 7) == pytest.approx((0.0, 1.959964**2 / (7 + 1.959964**2)))
    assert of_share(0, 0) == (0, 1)
    assert of_share(5e149, 1e150) == pytest.approx((0.5, 0.5))  # of somebody's run directory


def test_students() -> None:
    """1, 2, 3: mean 2, standard error 1 / sqrt(3), t of two degrees of freedom 4.3027."""
    assert of_mean([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))
