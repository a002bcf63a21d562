"""FedAvg: x+ = sum_k (n_k / n) x_k over the clients that answered."""

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.methods.fedavg import FedAvg
from fedcohort.testing import assert_same, play, tiny_task
from support.toy import play_toy, position, toy_task


def test_toy_round():
    """(10 * 1.38 + 30 * 0.458) / 40 = 0.6885."""
    (state,) = play_toy("fedavg", (0, 1))
    assert position(state) == pytest.approx(0.6885, abs=1e-6)


def test_second_round_starts_from_the_mean():
    """From .6885, client 1 goes to -1 + .9^3 * 1.6885 = .2309165, client 2 to 1 - .9^2 * .3115 = .747685."""
    _, state = play_toy("fedavg", (0, 1), (1, 2))
    assert position(state) == pytest.approx((30 * 0.2309165 + 20 * 0.747685) / 50, abs=1e-6)


def test_weights_are_over_those_who_answered():
    """Client 1 is lost: client 0 has all the weight, x+ = 1.38."""
    (state,) = play_toy("fedavg", (0, 1), lost=(1,))
    assert position(state) == pytest.approx(1.38, abs=1e-6)


def test_the_order_of_the_cohort_does_not_matter():
    (one,), (other,) = play_toy("fedavg", (0, 1)), play_toy("fedavg", (1, 0))
    assert position(one) == position(other)


def test_server_lr_scales_the_movement():
    """1 + 0.5 * (0.6885 - 1) = 0.84425."""
    (state,) = play_toy("fedavg(server_lr=0.5)", (0, 1))
    assert position(state) == pytest.approx(0.84425, abs=1e-6)


def test_weight_is_the_size_of_the_data_not_the_work_done():
    """A straggler's partial result keeps its weight: client 1 stops after one step, at 0.8."""
    (state,) = play_toy("fedavg", (0, 1), task=toy_task(steps=(2, 1, 2)))
    assert position(state) == pytest.approx((10 * 1.38 + 30 * 0.8) / 40, abs=1e-6)


def test_the_learning_rate_decays_with_the_round():
    """lr 0.1 then 0.05; client 1 alone from 0.458: -1 + 0.95^3 * 1.458 = 0.2500528."""
    task = toy_task()
    local = type(task.local)(lr=0.1, batch=100, decay=0.5)
    _, state = play_toy("fedavg", (1,), task=toy_task(local=local), rounds=2)
    assert position(state) == pytest.approx(-1 + 0.95**3 * 1.458, abs=1e-6)


def test_it_is_the_default_of_every_role():
    ours, _ = play(Method.of(FedAvg()), tiny_task(), 2)
    theirs, _ = play(Method.of(), tiny_task(), 2)
    assert_same(ours, theirs, "fedavg is not the default")
    assert torch.isfinite(ours.groups[0].weights.params).all()
