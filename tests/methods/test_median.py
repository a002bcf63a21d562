"""The coordinate-wise median."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.median import Median
from fedcohort.testing import play, tiny_task
from support.toy import play_toy, position, updates_of

DELTAS = torch.tensor([[1.0, -5.0], [2.0, 0.0], [9.0, 1.0], [4.0, 7.0]])


def test_odd_and_even():
    """(1, 2, 9) has 2 in the middle and (-5, 0, 1) has 0; with (4, 7) the two in the middle make (3, .5)."""
    three, four = (updates_of(range(count)).with_deltas(DELTAS[:count]) for count in (3, 4))
    assert Median().combine(torch.zeros(3), three).tolist() == [2, 0]
    assert Median().combine(torch.zeros(4), four).tolist() == [3, 0.5]


def test_toy_round():
    """Movements .38, -.542 and 0, whatever their samples."""
    (state,) = play_toy("median", (0, 1, 2))
    assert position(state) == 1.0
    (state,) = play_toy("median", (0, 1))
    assert position(state) == pytest.approx(1 + (0.38 - 0.542) / 2, abs=1e-6)


def test_one_liar_of_four_does_not_carry_it_away():
    class OneLies(ReferenceEngine):
        def train(self, objective, orders, number):
            first, *others = super().train(objective, orders, number)
            return [first._replace(up={"delta": torch.full_like(first.up["delta"], 1e6)}), *others]

    task = tiny_task()
    start = task.model.init(0).params
    moved = {
        text: float(
            (
                play(Method.parse(text), task, 1, engine=OneLies(task))[0].groups[0].weights.params - start
            ).norm()
        )
        for text in ("median", "fedavg")
    }
    assert moved["median"] < 10
    assert moved["fedavg"] > 1e5
