"""q-FedAvg: x <- x - sum F^q u / sum h, u = L (x - x_k), h = q F^(q-1) |u|^2 + L F^q, F before training."""

from dataclasses import replace

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.qfedavg import QFedAvg
from fedcohort.testing import play, tiny_task
from support.toy import play_toy, position, profile_of, round_of, updates_of


def test_worked_example():
    """lr = .1, so L = 10; F = (2, 2), deltas .38 and -.542: h = 14.44 + 20 and 29.3764 + 20.

    x = 1 + 10 * 2 * (.38 - .542) / 83.8164 = .9613440806.
    """
    profile = replace(profile_of([[1, 1]] * 2), local=Local(lr=0.1))
    updates = updates_of([0, 1], probes={"loss_before": torch.tensor([2.0, 2.0])})
    updates = replace(updates, up={"delta": torch.tensor([[0.38], [-0.542]])})
    weights = QFedAvg().weights({}, updates, round_of(profile, 2))
    assert 1 + float(weights @ torch.tensor([0.38, -0.542]).double()) == pytest.approx(0.9613440806, abs=1e-7)


def test_a_squared_norm_is_a_sum():
    """delta = (.3, .4) and (0, -.542): 100 * .25 + 20 and 100 * .293764 + 20, so 20 / 94.3764 each."""
    profile = replace(profile_of([[1, 1]] * 2), local=Local(lr=0.1))
    updates = updates_of([0, 1], probes={"loss_before": torch.tensor([2.0, 2.0])})
    updates = replace(updates, up={"delta": torch.tensor([[0.3, 0.4], [0.0, -0.542]])})
    weights = QFedAvg().weights({}, updates, round_of(profile, 2))
    assert weights.tolist() == pytest.approx([20 / 94.3764] * 2)


def test_toy_round_asks_for_the_loss_before_training():
    """The toy's losses are 1 + 2 = 3 at both clients: h = 14.44 + 30 and 29.3764 + 30."""
    (state,) = play_toy("qfedavg", (0, 1))
    assert position(state) == pytest.approx(1 + 30 * (0.38 - 0.542) / (14.44 + 29.3764 + 60), abs=1e-6)


def test_q_zero_weighs_everybody_the_same():
    (ours,), (theirs,) = play_toy("qfedavg(q=0)", (0, 1)), play_toy("fairavg", (0, 1))
    assert position(ours) == pytest.approx(position(theirs), abs=1e-6)


def test_the_loss_costs_four_bytes_per_client():
    ours, _ = play(Method.parse("qfedavg"), tiny_task(), 1)
    plain, _ = play(Method.parse("fedavg"), tiny_task(), 1)
    assert (ours.bytes_up - plain.bytes_up, ours.bytes_down - plain.bytes_down) == (4 * 4, 0)


def test_both_engines_tell_the_same_losses():
    """Small clients of an MLP are trained together by the fast engine; what they tell is the same."""
    task, method = tiny_task(), Method.parse("qfedavg")
    slow, _ = play(method, task, 2, engine=ReferenceEngine(task))
    fast, _ = play(method, task, 2, engine=PoolEngine(task, workers=2))
    torch.testing.assert_close(fast.groups[0].weights.params, slow.groups[0].weights.params)


def test_algorithm_two_draws_by_samples_and_then_weighs_all_alike():
    """Of clients with 10 and 30 samples the second is the cohort in three of four rounds; where both are, and
    their losses are equal, so are their weights."""
    part, profile = Method.parse("qfedavg+uniform(odds='samples')").selector, profile_of([[10, 0], [0, 30]])
    drawn = [int(part.select({}, round_of(profile, 1, number), None)) for number in range(400)]
    assert drawn.count(1) / 400 == pytest.approx(0.75, abs=0.07)
    updates = updates_of([0, 1], size=torch.tensor([10, 30]), probes={"loss_before": torch.ones(2)})
    updates = replace(updates, up={"delta": torch.ones(2, 1)})
    first, second = QFedAvg().weights({}, updates, round_of(profile, 2)).tolist()
    assert first == second
