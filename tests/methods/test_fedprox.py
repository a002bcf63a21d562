"""FedProx: the local gradient gains mu (x - sent model)."""

import pytest

from fedcohort.core.method import Method
from fedcohort.testing import assert_same, play, tiny_task
from support.toy import play_toy, position, toy_task


def test_toy_round():
    """mu = 1, one step is x <- x - 0.1 [(x - b) + (x - 1)].

    Client 0: 1 -> 1.2 -> 1.2 - 0.1 (-1.8 + 0.2) = 1.36.
    Client 1: 1 -> 0.8 -> 0.8 - 0.1 (1.8 - 0.2) = 0.64 -> 0.64 - 0.1 (1.64 - 0.36) = 0.512.
    Mean by samples: (10 * 1.36 + 30 * 0.512) / 40 = 0.724.
    """
    (state,) = play_toy("fedprox(mu=1)", (0, 1))
    assert position(state) == pytest.approx(0.724, abs=1e-6)


def test_the_pull_is_towards_the_model_of_this_round():
    """Round 2 starts at 0.724 with client 1 alone: the pull is zero at 0.724, not at 1.

    .724 -> .5516 -> .5516 - .1 (1.5516 - .1724) = .41368 -> .41368 - .1 (1.41368 - .31032) = .303344.
    """
    _, state = play_toy("fedprox(mu=1)", (0, 1), (1,))
    assert position(state) == pytest.approx(0.303344, abs=1e-6)


def test_one_step_is_fedavg():
    """At the first step x is the sent model, so the pull is zero."""
    task = toy_task(steps=(1, 1, 1))
    (prox,), (plain,) = play_toy("fedprox(mu=5)", (0, 1), task=task), play_toy("fedavg", (0, 1), task=task)
    assert position(prox) == position(plain)


def test_without_pull_it_is_fedavg_bit_for_bit():
    ours, _ = play(Method.parse("fedprox(mu=0)"), tiny_task())
    theirs, _ = play(Method.parse("fedavg"), tiny_task())
    assert_same(ours, theirs, "fedprox(mu=0) is not fedavg")


def test_a_pull_changes_the_result():
    ours, _ = play(Method.parse("fedprox(mu=0.5)"), tiny_task())
    theirs, _ = play(Method.parse("fedavg"), tiny_task())
    assert not ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)
