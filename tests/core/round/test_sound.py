"""A round whose result would not be a number: made again without who broke it, or not made at all."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from fedcohort.core.engine import Answer, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Round, Updates
from fedcohort.core.roles import Grouping, Objective
from fedcohort.core.state import pack
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.testing import play, tiny_task
from support.toy import Cohorts, position, toy_task

HUGE = 1e30  # a number whose square is none


def huge_of(clients: set[int], rounds: set[int], number_sent: float = HUGE) -> type[ReferenceEngine]:
    """An engine in which these clients send enormous updates in these rounds."""

    class Huge(ReferenceEngine):
        def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
            answers = super().train(objective, orders, number)
            up = {key: torch.full_like(value, number_sent) for key, value in answers[0].up.items()}
            odd = clients if number in rounds else set()
            return [a._replace(up=up) if a.client in odd else a for a in answers]

    return Huge


def test_who_breaks_the_model_is_left_out_of_the_round():
    """Adam's second moment is infinite with client 1; without it the round is that of client 0 alone."""
    task, adam = toy_task(), Method.parse("fedadam").server_optimiser
    both, alone = (Method.of(Cohorts((cohort,)), adam) for cohort in ((0, 1), (0,)))
    ours, (report,) = play(both, task, 1, engine=huge_of({1}, {0})(task))
    theirs, _ = play(alone, task, 1)
    assert position(ours) == position(theirs)
    assert ours.groups[0].known("optimiser").keys() == theirs.groups[0].known("optimiser").keys()
    assert (report.answered.tolist(), report.rejected.tolist()) == ([0], [1])
    assert (report.spoilt.tolist(), report.lost.tolist()) == ([1], [])


def test_where_that_is_not_enough_nothing_changes_and_the_round_counts():
    task = toy_task()
    method = Method.of(Cohorts(((0, 1, 2),)), Method.parse("fedadam").server_optimiser)
    before, _ = play(method, task, 1)
    after, reports = play(method, task, 3, engine=huge_of({0, 1}, {1})(task))
    assert [report.spoilt.tolist() for report in reports] == [[], [0, 1, 2], []]
    assert reports[1].rejected.tolist() == [0, 1, 2]
    assert reports[1].loss != reports[1].loss
    skipped, _ = play(method, task, 2, engine=huge_of({0, 1}, {1})(task))
    assert skipped.round == 2
    assert position(skipped) == position(before)
    assert position(after) != position(before)


@pytest.mark.parametrize("text", ["fedadam", "fedyogi", "fedadagrad", "scaffold(server_lr=1e9)"])
def test_no_state_holds_what_is_no_number(text):
    task = tiny_task()
    engine = huge_of(set(range(0, 8, 2)), {0, 1, 2})(task)
    state, reports = play(Method.parse(text), task, 4, engine=engine)
    assert all(value.isfinite().all() for value in pack(state).values())
    assert any(len(report.rejected) for report in reports)


@dataclass(frozen=True)
class Squaring(Grouping):
    """Remembers the squares of all updates."""

    name: ClassVar[str] = "squaring"

    def init_grouping(self, profile: Profile) -> Memory:
        return {**super().init_grouping(profile), "squares": torch.zeros(1)}

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        return {**memory, "squares": memory["squares"] + (updates.up["delta"] ** 2).sum()}


def test_who_breaks_what_a_grouping_remembers_is_left_out_too():
    """The model would bear client 1's update, the memory of squares does not; client 0's is .38^2."""
    task = toy_task()
    state, (report,) = play(
        Method.of(Cohorts(((0, 1),)), Squaring()), task, 1, engine=huge_of({1}, {0})(task)
    )
    assert report.spoilt.tolist() == [1]
    assert state.grouping["squares"].tolist() == pytest.approx([0.1444], abs=1e-6)


def test_memory_of_who_is_left_out_stays_as_it_was():
    task = toy_task()
    method = Method.of(Cohorts(((0, 1),)), *Method.parse("scaffold(server_lr=1e9)").parts[1:])
    state, _ = play(method, task, 1, engine=huge_of({1}, {0})(task))
    assert set(state.clients) == {0}


@pytest.mark.parametrize(
    "text", ["fedlecc(loss_source='last_seen')", "haccs(loss_source='last_seen')", "fedcor"]
)
def test_what_is_not_known_yet_may_be_left_open(text):
    """These remember NaN or infinity for clients that have not trained yet."""
    _, reports = play(Method.parse(text), tiny_task(), 3)
    assert all(len(report.answered) and not len(report.spoilt) for report in reports)


def test_large_numbers_are_numbers():
    """Their sum is none, but no single one is lost."""
    task = tiny_task()
    engine = huge_of(set(range(8)), {0, 1}, 2e36)(task)
    state, reports = play(Method.parse("fedavg"), task, 2, engine=engine)
    params = state.groups[0].weights.params
    assert params.isfinite().all()
    assert not params.sum().isfinite()
    assert not any(len(report.rejected) for report in reports)
