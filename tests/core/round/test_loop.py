"""The round loop: who trains, what is counted, what is refused, and that nothing is changed in place."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedcohort.core.engine import Answer, ModelTrial, Order
from fedcohort.core.faults import Faults
from fedcohort.core.method import Method
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import start, step
from fedcohort.core.state import pack
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import Cohorts, Regrouped, play_toy, position, toy_task

FOUR_BYTES = 4


def plain_task(sizes: Sequence[int], model: object = "logistic", **conditions: object) -> Task:
    """Clients of these sizes, four features, three classes: a logistic model has 15 parameters, 60 bytes."""
    x = torch.randn(sum(sizes), 4, generator=torch.Generator().manual_seed(0))
    y = torch.arange(sum(sizes)) % 3
    rows = torch.arange(sum(sizes)).split(list(sizes))
    split = Split.of(x, y, rows)
    names = tuple(str(client) for client in range(len(sizes)))
    federation = Federation(split, split, split, ("a", "b", "c"), names, None, {})
    return Task.of(federation, model, **conditions)  # type: ignore[arg-type]


SIX = [9, 6, 12, 9, 6, 12]
MODEL = 15 * FOUR_BYTES
DATA = 6 * 5 * 8  # what each of six clients has: three sizes, the shape of an example, no vocabulary
UP = MODEL + 8 + 8 + 4  # with steps, samples and their mean loss


@pytest.mark.parametrize(
    ("text", "cohort", "once", "up", "down"),
    [
        ("fedavg", 4, DATA, 4 * UP, 4 * MODEL),
        ("fedprox", 4, DATA, 4 * UP, 4 * MODEL),
        ("fedavgm", 4, DATA, 4 * UP, 4 * MODEL),
        # control variates double both ways
        ("scaffold", 4, DATA, 4 * (UP + MODEL), 8 * MODEL),
        # everybody gets the model and answers with a loss; the two chosen already have it
        ("fedlecc", 2, DATA + 6 * 3 * 8, 2 * UP + 6 * 8, 6 * MODEL),
        # the loss of the steps comes with the update
        ("fedlecc(loss_source='last_seen')", 2, DATA + 6 * 3 * 8, 2 * UP, 2 * MODEL),
        ("fedentopt", 3, DATA + 6 * 3 * 8, 3 * UP, 3 * MODEL),
        # three models to two peers each, and nine accuracies
        ("cafa", 3, DATA + 6 * 3 * 8, 3 * UP + 9 * 4, 3 * MODEL + 6 * MODEL),
        # one loss per local step; clients of at most 12 samples take one step of 32
        ("fedgwc", 3, DATA, 3 * UP, 3 * MODEL),
        ("local_only", 3, 0, 0, 0),
    ],
)
def test_bytes(text, cohort, once, up, down):
    """Counted from what is sent: ``once`` before training, ``up`` and ``down`` in each of two rounds."""
    method, task = Method.parse(text), plain_task(SIX, cohort=cohort)
    assert play(method, task, 0)[0].bytes_up == once
    state, _ = play(method, task, 2)
    assert (state.bytes_up, state.bytes_down) == (once + 2 * up, 2 * down)


def test_buffers_travel_too():
    """BatchNorm of four features: 8 more parameters, 9 buffers; SCAFFOLD doubles the parameters only."""

    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    for text, floats in (("fedavg", 23 + 9), ("scaffold", 2 * 23 + 9)):
        state, _ = play(Method.parse(text), plain_task(SIX, model, cohort=4), 1)
        assert (state.bytes_up - DATA, state.bytes_down) == (4 * (floats * 4 + 20), 4 * floats * 4)


class Poisoned(ReferenceEngine):
    """Client 1 answers with infinity."""

    liars = (1,)

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        answers = super().train(objective, orders, number)
        return [
            a._replace(up={key: value * torch.inf for key, value in a.up.items()})
            if a.client in self.liars
            else a
            for a in answers
        ]


class Endless(ReferenceEngine):
    """Client 2 has an endless loss before training, the others 1."""

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        return torch.where(trial.clients == 2, torch.inf, 1.0)


def test_an_update_that_is_not_a_number_is_refused():
    """It is reported, it has no weight, and the client's memory stays as it was."""
    method = Method.of(Cohorts(((0, 1),)), *Method.parse("scaffold").parts[1:])
    task = toy_task()
    state, (report,) = play(method, task, 1, engine=Poisoned(task))
    assert report.rejected.tolist() == [1]
    assert report.answered.tolist() == [0]
    assert report.lost.tolist() == []
    assert set(state.clients) == {0}
    assert position(state) == pytest.approx(1.38, abs=1e-6)


def test_several_updates_that_are_not_numbers_cost_only_who_sent_them():
    """Clients 1 and 2 of three: what is left is client 0's model."""
    task = toy_task(b=(3.0, -1.0, 2.0))
    engine = Poisoned(task)
    engine.liars = (1, 2)
    state, (report,) = play(Method.of(Cohorts(((0, 1, 2),))), task, 1, engine=engine)
    assert (report.rejected.tolist(), report.spoilt.tolist()) == ([1, 2], [])
    assert position(state) == pytest.approx(1.38, abs=1e-6)


def test_an_answer_that_was_refused_is_no_update():
    """Whatever it holds."""
    task = toy_task()

    class Refusing(ReferenceEngine):
        def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
            answers = super().train(objective, orders, number)
            return [a._replace(refused="it lies") if a.client == 1 else a for a in answers]

    state, (report,) = play(Method.of(Cohorts(((0, 1),))), task, 1, engine=Refusing(task))
    assert (report.rejected.tolist(), report.answered.tolist()) == ([1], [0])
    assert position(state) == pytest.approx(1.38, abs=1e-6)


def test_a_polled_loss_without_end_is_none():
    """Who is asked for a loss and has none is not chosen, where the highest losses are."""
    task = tiny_task()
    _, (report,) = play(Method.parse("fedlecc(guide='losses')"), task, 1, engine=Endless(task))
    assert report.selected.tolist() == [0, 1, 3, 4]


def test_a_client_whose_loss_explodes_is_refused():
    (state,) = play_toy("fedavg", (0, 1), task=toy_task(b=(float("inf"), -1, 1)))
    assert position(state) == pytest.approx(0.458, abs=1e-6)


@pytest.mark.parametrize(
    "text", ["fedavg", "scaffold", "fedavgm", "fedlecc", "cafa", "fedgwc", "clust_psi_pfl"]
)
def test_when_everybody_is_lost_the_model_stays_and_the_round_counts(text):
    task = tiny_task(faults=Faults(dropout=1.0))
    before, _ = play(Method.parse(text), task, 0)
    after, (report,) = play(Method.parse(text), task, 1)
    assert after.round == 1
    for old, new in zip(before.groups, after.groups, strict=True):
        assert old.weights.params.equal(new.weights.params)
        assert all(
            old.known("optimiser")[key].equal(new.known("optimiser")[key]) for key in old.known("optimiser")
        )
    assert len(report.answered) == 0
    assert report.loss != report.loss  # nobody trained: no loss
    assert after.clients == {}


@pytest.mark.parametrize(
    "text", ["fedavg", "scaffold", "fedlecc", "fedentopt(buffer=0)", "cafa", "clust_psi_pfl"]
)
def test_an_empty_client_never_trains(text):
    _, reports = play(Method.parse(text), plain_task([9, 0, 6, 6, 0], cohort=5), 3)
    for report in reports:
        assert sorted(report.selected.tolist()) == [0, 2, 3]


@pytest.mark.parametrize(
    "text", ["fedavg", "scaffold", "fedlecc", "fedentopt", "cafa", "fedgwc", "clust_psi_pfl"]
)
def test_a_federation_of_one(text):
    """Every method becomes local training, and says nothing about it."""
    state, reports = play(Method.parse(text), plain_task([9], cohort=1), 2)
    plain, _ = play(Method.parse("fedavg"), plain_task([9], cohort=1), 2)
    assert [report.answered.tolist() for report in reports] == [[0], [0]]
    torch.testing.assert_close(state.groups[0].weights.params, plain.groups[0].weights.params)


@pytest.mark.parametrize(
    ("cohort", "clients", "size"),
    [(0.29, 100, 29), (0.1, 10, 1), (0.05, 10, 1), (0.55, 10, 5), (1.0, 10, 10), (3, 10, 3), (30, 10, 10)],
)
def test_cohort_sizes(cohort, clients, size):
    """A fraction is rounded down, at least to one; 0.29 of 100 is 29, though floats have 0.29 * 100 < 29."""
    task = plain_task([3] * clients, cohort=cohort)
    assert task.cohort_size == size
    _, (report,) = play(Method.parse("fedavg"), task, 1)
    assert len(report.selected) == size


@pytest.mark.parametrize("cohort", [0, -1, 0.0, 1.5])
def test_cohorts_that_make_no_sense(cohort):
    with pytest.raises(UserError, match="a number of clients or a fraction between 0 and 1"):
        plain_task([3, 3], cohort=cohort)


@pytest.mark.parametrize(
    "text", ["fedavg", "scaffold", "fedlecc+fedavgm", "fedentopt+cafa", "fedgwc(tolerance=0.9)", "local_only"]
)
def test_a_step_leaves_its_state_untouched(text):
    method, task = Method.parse(text), tiny_task()
    profile, engine = task.profile(method), ReferenceEngine(task)
    state = start(method, task, profile)
    for _ in range(3):
        before = {key: value.numpy().tobytes() for key, value in pack(state).items()}
        after, _ = step(method, state, task, profile, engine)
        assert {key: value.numpy().tobytes() for key, value in pack(state).items()} == before
        state = after


def test_the_order_of_answers_does_not_matter():
    class Reversed(ReferenceEngine):
        def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
            return super().train(objective, orders, number)[::-1]

    task, method = tiny_task(), Method.parse("scaffold")
    ours, _ = play(method, task, 3, engine=Reversed(task))
    theirs, _ = play(method, task, 3)
    assert ours.groups[0].weights.params.equal(theirs.groups[0].weights.params)
    assert ours.groups[0].known("optimiser")["c"].equal(theirs.groups[0].known("optimiser")["c"])


@pytest.mark.parametrize("text", ["fedavg", "scaffold"])
def test_a_client_that_cannot_take_a_step_is_lost_not_wrong(text):
    """One sample and BatchNorm: no statistics, no step, no weight."""

    def model() -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))

    _, (report,) = play(Method.parse(text), plain_task([9, 1, 6], model, cohort=3), 1)
    assert report.answered.tolist() == [0, 2]
    assert report.lost.tolist() == [1]
    assert report.rejected.tolist() == []


def test_the_reported_loss_is_weighted_by_samples():
    """Losses are 1 + (x - b)^2 / 2: client 0 at 1, 1.2 has 3, 2.62; client 1 at 1, .8, .62 also 2.3122."""
    method = Method.of(Cohorts(((0, 1),)))
    _, (report,) = play(method, toy_task(), 1)
    expected = (10 * (3 + 2.62) / 2 + 30 * (3 + 2.62 + 2.3122) / 3) / 40
    assert report.loss == pytest.approx(expected, abs=1e-5)


def test_new_groups_copy_the_group_their_members_came_from():
    """{0, 1, 2} splits into {0, 2} and {1}; each trains alone; then {2} leaves {0}, with {0, 2}'s model."""
    schedule = ((0, 1, 0), (0, 1, 2))
    first, second, third = play_toy("fedavg", (0, 1), (0, 1), (0, 1, 2), grouping=Regrouped(schedule))
    assert [position(first, g) for g in range(2)] == [position(first, 0)] * 2
    assert len(second.groups) == 3
    assert position(second, 2) == position(second, 0) != position(second, 1)
    assert position(third, 2) != position(third, 0)
    assert position(second, 1) == pytest.approx(-1 + 0.9**3 * (position(first) + 1), abs=1e-6)


def test_a_group_that_nobody_was_chosen_from_keeps_its_model():
    states = play_toy("fedavg", (0, 1), (0,), grouping=Regrouped(((0, 1, 0),)))
    assert position(states[1], 1) == position(states[0], 1)
    assert position(states[1], 0) != position(states[0], 0)


def test_an_empty_clients_past_does_not_decide_a_new_groups_model():
    """Client 0 holds nothing and comes from group 0; group 2 descends from group 1, as its client 3 does."""
    task = toy_task((0, 3, -1, 1), (0, 10, 30, 20), (2, 2, 3, 2), (1, 1, 1, 1))
    schedule = ((0, 0, 1, 1), (2, 0, 1, 2))
    _, state = play_toy("fedavg", (1, 2), (1, 2), task=task, grouping=Regrouped(schedule))
    assert position(state, 2) == position(state, 1) != position(state, 0)


def test_a_new_group_may_be_of_empty_clients_alone():
    """Client 0 holds nothing: its group has the model that it was served by before, and never trains."""
    task = toy_task((0, 3, -1), (0, 10, 30), (2, 2, 3), (1, 1, 1))
    first, second = play_toy("fedavg", (1, 2), (1, 2), task=task, grouping=Regrouped(((1, 0, 0),)))
    assert position(first, 1) == position(first, 0) == position(second, 1) != position(second, 0)


def test_a_different_seed_is_a_different_run():
    one, _ = play(Method.parse("fedavg"), tiny_task(), 1)
    task = replace(tiny_task(), seed=1)
    other, _ = play(Method.parse("fedavg"), task, 1)
    assert not one.groups[0].weights.params.equal(other.groups[0].weights.params)
