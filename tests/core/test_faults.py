"""Simulated trouble: who is lost, who is slow, and by how much."""

from collections import Counter

import pytest
import torch

from fedcohort.core.faults import Faults
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError

TEN = torch.arange(10, 20)


@pytest.mark.parametrize(("share", "lost"), [(0.0, 0), (0.3, 3), (0.25, 2), (1.0, 10)])
def test_an_exact_share_of_the_cohort_is_lost(share, lost):
    for number in range(5):
        gone = Faults(dropout=share).lost(TEN, 0, number)
        assert len(set(gone.tolist())) == lost
        assert set(gone.tolist()) <= set(TEN.tolist())


def test_others_are_lost_in_other_rounds():
    lost = {tuple(sorted(Faults(dropout=0.3).lost(TEN, 0, number).tolist())) for number in range(20)}
    assert len(lost) > 10
    assert Faults(dropout=0.3).lost(TEN, 0, 4).equal(Faults(dropout=0.3).lost(TEN, 0, 4))


def test_everybody_is_lost_equally_often():
    """1000 rounds of 3 in 10: 300 each, deviation sqrt(1000 * .21) = 14.5."""
    counts = Counter(c for n in range(1000) for c in Faults(dropout=0.3).lost(TEN, 0, n).tolist())
    assert all(abs(counts[client] - 300) < 5 * 14.5 for client in TEN.tolist())


def test_by_a_coin_for_each():
    """The number varies; its mean over 1000 cohorts of ten is 3, with deviation sqrt(2.1 / 1000) = .046."""
    faults = Faults(dropout=0.3, dropout_draw="bernoulli")
    numbers = [len(faults.lost(TEN, 0, number)) for number in range(1000)]
    assert len(set(numbers)) > 4
    assert abs(sum(numbers) / 1000 - 3) < 5 * 0.046


def test_stragglers_are_a_fixed_share_of_all_clients():
    eligible = torch.tensor([0, 2, 3, 5, 6, 7, 8, 9])
    slow = Faults(stragglers=0.5).slow(eligible, 0)
    assert len(slow) == 4
    assert slow <= set(eligible.tolist())
    assert Faults().slow(eligible, 0) == set()


def test_a_straggler_takes_one_to_all_epochs():
    """Uniform on 1..5 epochs, both ends included; 20 samples by 10 are two steps an epoch."""
    local, faults = Local(epochs=5, batch=10), Faults(stragglers=0.5)
    steps = Counter(faults.slow_budget(client, local, 0, number=0).steps_for(20) for client in range(500))
    assert set(steps) == {2, 4, 6, 8, 10}
    assert all(abs(times - 100) < 5 * 9 for times in steps.values())


def test_a_straggler_never_does_more_than_others():
    """Half an epoch of 40 samples by 10 is two steps; one epoch would be four."""
    budget = Faults(stragglers=1.0).slow_budget(3, Local(epochs=0.5, batch=10), 0, number=0)
    assert budget.steps_for(40) == 2


def test_fixed_for_the_run_or_drawn_anew():
    local = Local(epochs=5, batch=10)
    fixed = {Faults(stragglers=0.5).slow_budget(3, local, 0, number).epochs for number in range(20)}
    redrawn = {
        Faults(stragglers=0.5, straggler_draw="redraw").slow_budget(3, local, 0, number).epochs
        for number in range(20)
    }
    assert len(fixed) == 1
    assert len(redrawn) > 1


def test_a_budget_in_steps_is_drawn_in_steps():
    faults = Faults(stragglers=0.5)
    steps = {faults.slow_budget(client, Local(steps=3), 0, 0).steps for client in range(100)}
    assert steps == {1, 2, 3}


def test_a_task_gives_stragglers_less_to_do():
    """Half of eight are slow: in six rounds each of them once does less than all four epochs."""
    faults = Faults(stragglers=0.5, straggler_draw="redraw")
    task = tiny_task(local=Local(epochs=4), faults=faults)
    fewer = {c for c in range(8) for number in range(6) if task.budget(c, number).epochs < 4}
    assert fewer == task.slow
    assert len(fewer) == 4


def test_a_lost_client_received_the_model_and_sent_nothing():
    """Half of a cohort of four: four downloads, two uploads."""
    state, (report,) = play(Method.parse("fedavg"), tiny_task(faults=Faults(dropout=0.5)), 1)
    model = state.groups[0].weights.bytes
    assert (len(report.selected), len(report.lost), len(report.answered)) == (4, 2, 2)
    assert (state.bytes_down, state.bytes_up) == (4 * model, 8 * 40 + 2 * (model + 20))


def test_stragglers_results_are_kept_or_dropped():
    task = tiny_task(cohort=8, faults=Faults(stragglers=0.5))
    _, (kept,) = play(Method.parse("fedavg"), task, 1)
    assert len(kept.answered) == 8
    task = tiny_task(cohort=8, faults=Faults(stragglers=0.5, straggler_result="drop"))
    _, (dropped,) = play(Method.parse("fedavg"), task, 1)
    assert set(dropped.lost.tolist()) == task.slow
    assert len(dropped.answered) == 4


def test_stragglers_need_something_to_do_less_of():
    few = Local(epochs=1)
    with pytest.raises(UserError, match=r"set local\.epochs to 2 or more, or faults\.straggler_result"):
        tiny_task(local=few, faults=Faults(stragglers=0.5))
    tiny_task(local=few, faults=Faults(stragglers=0.5, straggler_result="drop"))
    tiny_task(local=Local(steps=3), faults=Faults(stragglers=0.5))
