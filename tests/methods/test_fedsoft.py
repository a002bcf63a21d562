"""FedSoft: importance by counting, selection by importance, a pull towards the weighted mean of centres.

Reference vectors asserted here: fedsoft_v, fedsoft_grad, fedsoft_step.
"""

from dataclasses import replace

import pytest
import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Round, View
from fedcohort.core.round.local_training import client_round, prepare
from fedcohort.methods.fedsoft import FedSoft
from fedcohort.methods.uniform import Uniform
from fedcohort.models.flat import Flat, Weights
from fedcohort.testing import play, tiny_task
from support.plane import Dictated, Plane, centres, plane_round, plane_task
from support.toy import profile_of

COUNTS = torch.tensor([[3, 1], [0, 2], [4, 1]])
UNIT = [Weights(torch.tensor([1.0, 0.0]), torch.zeros(0)), Weights(torch.tensor([0.0, 1.0]), torch.zeros(0))]


def heard() -> tuple[FedSoft, dict[str, torch.Tensor], Profile]:
    """Three clients with 4, 2 and 5 samples have told which of two centres serves how many of them best."""
    part, profile = FedSoft(groups=2), profile_of(COUNTS)
    return part, part.hear(part.init_grouping(profile), torch.arange(3), COUNTS), profile


def test_a_client_counts_the_samples_each_centre_serves_best():
    losses = torch.tensor([[0.1, 0.5, 0.2, torch.nan], [0.3, 0.5, 0.1, 9.0]])
    assert FedSoft(groups=2).answer(losses).tolist() == [2, 2]  # the tie goes to the first


def test_importance_has_a_floor():
    _, memory, _ = heard()
    rows = [pytest.approx(row) for row in ([0.75, 0.25], [1e-4, 1.0], [0.8, 0.2])]
    assert memory["importance"].tolist() == rows
    assert memory["group"].tolist() == [0, 1, 0]


def test_a_small_importance_may_stay_small():
    """One sample of 30,000 is below the floor of 1e-4, but it is not zero."""
    answers = torch.tensor([[29_999, 1, 0]])
    memory = FedSoft(groups=3).init_grouping(profile_of([[30_000, 0]]))
    for zeros_only, least in ((False, 1e-4), (True, 1 / 30_000)):
        part = FedSoft(groups=3, zeros_only=zeros_only)
        heard = part.hear(memory, torch.tensor([0]), answers)
        assert heard["importance"][0, 1:].tolist() == pytest.approx([least, 1e-4])


def test_odds():
    """Column 0: (3, 2e-4, 4) / 7.0002. Column 1: (1, 2, 1) / 4."""
    part, memory, profile = heard()
    odds = part.odds(memory, profile)
    assert odds[:, 0].tolist() == pytest.approx(
        [0.42855918402331367, 2.857061226822091e-05, 0.5714122453644181]
    )
    assert odds[:, 1].tolist() == pytest.approx([0.25, 0.5, 0.25])


@pytest.mark.parametrize(("lr", "end"), [(1.0, [0.5 - 0.175, 0.5 + 0.075]), (0.5, [0.4125, 0.5375])])
def test_one_step_of_the_worked_client(lr, end):
    """w = (.5, .5), centres e1 and e2, u = (.75, .25), lambda = .1, gradient of the loss (.2, -.1).

    The pull adds .1 (w - (.75, .25)) = (-.025, .025): gradient (.175, -.075).
    """
    part, memory, _ = heard()
    down = {"buffers": torch.zeros(0), **part.tailor(memory, 0, UNIT)}
    mine = {"params": torch.tensor([0.5, 0.5]), "buffers": torch.zeros(0)}
    view = View(down, mine, torch.tensor([4, 0]), 4, lr, 1)
    examples = torch.zeros(4, 1), torch.zeros(4, dtype=torch.long)
    up, mine, _ = client_round(prepare(part, Flat(Plane), Local(), *examples, view, (0, 0, 0)))
    assert mine["params"].tolist() == pytest.approx(end)
    assert up["delta"].equal(mine["params"])  # centres are means of models


def test_the_pull_is_lambda_times_the_sum_of_importance():
    part, memory, _ = heard()
    assert float(part.tailor(memory, 1, UNIT)["pull"]) == pytest.approx(0.1 * 1.0001)


def test_clients_are_drawn_by_their_odds():
    """Of centre 1's clients (1, 2, 1) / 4, client 1 is drawn alone in half of the rounds."""
    part, memory, profile = heard()
    odds = part.odds(memory, profile)[:, 1]
    drawn = [
        int(Uniform().select({}, Round(number, profile, 1, torch.arange(3), 1, odds=odds), None))
        for number in range(400)
    ]
    assert drawn.count(1) / 400 == pytest.approx(0.5, abs=0.08)


class Whole(Dictated):
    """FedSoft's clients send the model itself."""

    def train(self, objective, orders, number):  # type: ignore[no-untyped-def]
        return [
            answer._replace(up={"delta": torch.tensor(self.ends[answer.client])})
            for answer in super().train(objective, orders, number)
        ]


def test_a_client_chosen_by_several_centres_counts_for_each():
    """One client, two centres, one answer: both centres become its model, and it is reported once."""
    state = plane_round(
        "fedsoft(groups=2)", Whole(plane_task([5]), [[3.0, 4.0]], [[1.0, 2.0]]), [[0.0, 0.0]] * 2
    )
    assert centres(state) == [[3.0, 4.0]] * 2
    assert state.bytes_up == 40 + 2 * 4 + 20 + 2 * 8  # data, model, what goes with it, a number a centre


def test_when_everybody_trains_importance_enters_the_mean():
    """Without sampling, v weighs: with one centre, v = n_k / n."""
    engine = Whole(plane_task([10, 30]), [[4.0, 0.0], [0.0, 4.0]], [[1.0], [1.0]])
    assert centres(plane_round("fedsoft(groups=1)", engine, [[0.0, 0.0]]))[0] == pytest.approx([1.0, 3.0])


def test_everybody_trains_for_every_centre_each_weighing_as_it_fits():
    """Client 0 (10 samples) is served best by centre 0, client 1 (30) by centre 1, so u = 1 or the floor.

    v_0 = (10, .003) / 10.003 and v_1 = (.001, 30) / 30.001: each centre is nearly its own client's model.
    """
    engine = Whole(plane_task([10, 30]), [[4.0, 0.0], [0.0, 4.0]], [[1.0, 2.0], [2.0, 1.0]])
    found = centres(plane_round("fedsoft(groups=2)", engine, [[0.0, 0.0]] * 2))
    assert found[0] == pytest.approx([4 * 10 / 10.003, 4 * 0.003 / 10.003])
    assert found[1] == pytest.approx([4 * 0.001 / 30.001, 4 * 30 / 30.001])


def test_a_cohort_of_everybody_leaves_nobody_out():
    _, reports = play(Method.parse("fedsoft(groups=5)"), tiny_task(cohort=8), 2)
    assert [len(report.selected) for report in reports] == [8, 8]


def test_everybody_is_asked_every_other_round_and_only_then():
    """Two centres of two numbers for four clients are 64 bytes, in rounds 0 and 2; in the others those who

    train get a mean centre of 8 bytes; in all of them the strength of the pull.
    """
    method, task = Method.parse("fedsoft(groups=2)"), plane_task([10] * 4, cohort=2)
    before = 0
    for number in range(4):
        state, reports = play(method, task, number + 1)
        trained = len(reports[-1].selected)
        assert state.bytes_down - before == (64 + 4 * trained if number % 2 == 0 else 12 * trained)
        before = state.bytes_down


def test_the_cohort_is_shared_out_among_the_centres():
    profile = profile_of([[1, 1]] * 100)
    wanted = [FedSoft(groups=5).cohort(100, replace(profile, cohort=m)) for m in (10, 50, 1, 100)]
    assert wanted == [2, 10, 1, 100]


def test_clients_are_served_by_their_own_model():
    state, _ = play(Method.parse("fedsoft"), tiny_task(), 2)
    assert state.clients
    assert set(next(iter(state.clients.values()))) == {"params", "buffers"}
