"""FedEntropy: clients are left out while that makes the cohort's mean prediction more even."""

from dataclasses import replace

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.records import Updates
from fedcohort.core.round.cohort import ChosenCohort, judge
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.fedentropy import FedEntropy
from fedcohort.stats.entropy import entropy
from fedcohort.testing import play, tiny_task
from support.toy import profile_of, round_of, updates_of

OUTPUTS = torch.tensor([[0.9, 0.05, 0.05], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
FIVE = profile_of([[1, 1, 1]] * 5)


def judged(*sizes: int) -> list[int]:
    updates = updates_of([0, 1, 2, 3], size=torch.tensor(sizes), probes={"outputs": OUTPUTS})
    verdict = FedEntropy().judge({}, round_of(FIVE, 4), updates)
    return verdict.nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("sizes", "accepted", "before", "after"),
    [
        ((10, 10, 10, 10), [1, 2, 3], 1.519755679, 1.58014547),
        ((100, 300, 100, 100), [0, 2, 3], 1.394609773, 1.576340099),  # weighted by samples
    ],
)
def test_worked_example(sizes, accepted, before, after):
    assert judged(*sizes) == accepted
    mass = OUTPUTS.double() * torch.tensor(sizes)[:, None]
    together = torch.stack([mass.sum(0), mass[accepted].sum(0)])
    assert entropy(together).tolist() == pytest.approx([before, after], abs=1e-7)


def test_saturated_outputs_are_no_error():
    outputs = torch.eye(2)[[0, 0, 1]]
    updates = updates_of([0, 1, 2], probes={"outputs": outputs})
    verdict = FedEntropy().judge({}, round_of(FIVE, 3), updates)
    assert verdict.tolist() == [False, True, True]  # 2:1 becomes 1:1; of equal clients the lowest goes


def test_identical_clients_all_stay():
    updates = updates_of([0, 1], probes={"outputs": OUTPUTS[[0, 0]]})
    assert FedEntropy().judge({}, round_of(FIVE, 2), updates).all()


def test_values():
    """0 and 2 are accepted, 1 is declined, 3 was lost, 4 was not asked."""
    part = FedEntropy()
    now = replace(round_of(FIVE, 4), selected=torch.arange(4), declined=torch.tensor([1]))
    after = part.observe(part.init_selector(FIVE), now, updates_of([0, 2]))
    assert after["value"].tolist() == [2, 0.5, 2, 1, 1]


def test_drawing_by_value():
    """With epsilon 1 a client of no value is never drawn, with epsilon 0 it is."""
    memory = {"value": torch.tensor([1.0, 1, 1, 1, 1e-12])}
    rounds = [round_of(FIVE, 1, number) for number in range(60)]
    by_value = {int(FedEntropy(epsilon=1).select(memory, now, None)) for now in rounds}
    uniform = {int(FedEntropy(epsilon=0).select(memory, now, None)) for now in rounds}
    assert by_value == {0, 1, 2, 3}
    assert uniform == {0, 1, 2, 3, 4}


class Half(FedEntropy):
    """Declines every other client."""

    def judge(self, memory, now, updates: Updates):
        return torch.arange(len(updates)) % 2 == 0


def test_declined_clients_send_no_update_and_forget_the_round():
    """Four train, two upload: 2 updates (with SCAFFOLD's change) and 4 outputs of 4 classes go up, beside
    what eight clients have and four tell of their steps."""
    task = tiny_task()
    method = Method.of(Half(), *Method.parse("scaffold").parts[1:])
    state, (report,) = play(method, task, 1)
    assert (len(report.answered), len(report.declined)) == (2, 2)
    assert len(report.lost) == len(report.rejected) == 0
    assert sorted([*report.answered.tolist(), *report.declined.tolist()]) == sorted(report.selected.tolist())
    assert sorted(state.clients) == report.answered.tolist()
    params = task.model.num_params
    assert state.bytes_up == 8 * 40 + 2 * 2 * 4 * params + 4 * (4 * 4 + 20)
    assert state.bytes_down == 4 * 2 * 4 * params


class SecondCohortOnly(FedEntropy):
    """The first cohort is not judged, the second declines everybody."""

    def judge(self, memory, now, updates: Updates):
        return None if now.group == 0 else torch.zeros(len(updates), dtype=torch.bool)


def test_a_cohort_that_is_not_judged_wants_all_its_clients():
    """Client 1 is in both cohorts: the first wants it, so only 2 is declined."""
    nows = [replace(round_of(FIVE, 2), group=g, selected=torch.tensor([g, g + 1])) for g in (0, 1)]
    choices = [ChosenCohort(now, {}, now.members[:0], {}) for now in nows]
    wanted, marked = judge(Method.of(SecondCohortOnly()), choices, updates_of([0, 1, 2]))
    assert wanted.ids.tolist() == [0, 1]
    assert [choice.now.declined.tolist() for choice in marked] == [[], [2]]


def test_the_outputs_are_those_of_the_trained_model():
    """Both engines: mean class probabilities of sent + delta on the client's own rows."""
    task, seen = tiny_task(), []

    class Listening(FedEntropy):
        def judge(self, memory, now, updates):
            seen.append(updates)

    method = Method.of(Listening())
    start = task.model.init(task.seed)
    train = task.federation.train
    for engine in (ReferenceEngine(task), PoolEngine(task, workers=2)):
        play(method, task, 1, engine=engine)
        updates = seen.pop()
        for client, delta, told in zip(
            updates.ids.tolist(), updates.up["delta"], updates.probes["outputs"], strict=True
        ):
            weights = start._replace(params=start.params + delta)
            truth = task.model.logits(weights, train.x[train.rows(client)]).softmax(1).mean(0)
            torch.testing.assert_close(told, truth.detach(), atol=1e-5, rtol=1e-4)
