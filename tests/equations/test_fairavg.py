"""FairAvg: the plain mean of the movements."""

import pytest

from equations.toy import play_toy, position, toy_task


def test_toy_round():
    """(1.38 + .458) / 2 = .919, though client 1 has three times the samples of client 0."""
    (state,) = play_toy("fairavg", (0, 1))
    assert position(state) == pytest.approx(0.919, abs=1e-6)


def test_only_those_who_answered_count():
    (state,) = play_toy("fairavg", (0, 1), lost=(1,))
    assert position(state) == pytest.approx(1.38, abs=1e-6)


def test_equal_sizes_make_it_fedavg():
    task = toy_task(sizes=(7, 7, 7))
    (ours,), (theirs,) = play_toy("fairavg", (0, 1), task=task), play_toy("fedavg", (0, 1), task=task)
    assert position(ours) == pytest.approx(position(theirs), abs=1e-7)
