"""The table [trust]: its defaults are in no run's settings, so that older runs stay what they are."""

import pytest

from fedcohort.core.trust import Trust, middle
from fedcohort.runs.experiment import Experiment
from fedcohort.util.errors import UserError


def test_defaults_are_not_written_down():
    plain = Experiment.of({"method": "fedavg"})
    assert plain.trust == Trust()
    assert "trust" not in plain.table()
    assert Experiment.of({"method": "fedavg", "trust": {"max_loss": 1e6}}).table() == plain.table()


def test_other_values_are_kept():
    asked = Experiment.of({"method": "fedavg", "trust": {"max_size_ratio": 500}})
    assert asked.table()["trust"]["max_size_ratio"] == 500
    assert Experiment.of(asked.table()).trust == asked.trust


@pytest.mark.parametrize("table", [{"max_size_ratio": 0.5}, {"max_loss": 0}, {"max_update_ratio": "high"}])
def test_values_that_make_no_sense(table):
    with pytest.raises(UserError, match=r"trust\.max_"):
        Experiment.of({"method": "fedavg", "trust": table})


def test_the_middle_of_an_even_number_is_the_upper_one():
    """So that one of two is never odd, and one of four that is tiny or huge is not the measure."""
    assert [middle(values) for values in ([], [7], [1e-9, 1], [1, 2, 1e9], [3, 1, 2, 1e9])] == [0, 7, 1, 2, 3]
