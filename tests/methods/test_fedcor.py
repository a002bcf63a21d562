"""FedCor: a Gaussian process over clients' loss changes; those with most covariance per deviation train."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.records import Ids, Memory, Round
from fedcohort.core.roles import Selector
from fedcohort.core.roles.optional import Rehearses
from fedcohort.methods.fedcor import FedCor
from fedcohort.stats import gaussian
from fedcohort.stats.gaussian import most_telling, telling
from fedcohort.testing import CHECKS, play, tiny_task
from support.toy import profile_of, round_of, updates_of

SIGMA = torch.tensor([[1, 0.8, 0], [0.8, 1, 0.1], [0, 0.1, 1.5]], dtype=torch.float64)
EVEN = torch.full((3,), 1 / 3, dtype=torch.float64)
QUICK = "fedcor(warmup=1, interval=2, first_iterations=20, iterations=5)"


def test_pick():
    """Scores (1.8, 1.9, 1.6) / 3 per deviation: .6, .6333, .4355, so client 1.

    Given it, [[.36, -.08], [-.08, 1.49]] is left of clients 0 and 2, with scores .1556 and .385: client 2.
    Variance alone would begin with client 2.
    """
    given = torch.tensor([[0.36, 0, -0.08], [0, 0, 0], [-0.08, 0, 1.49]], dtype=torch.float64)
    scores = telling(SIGMA, EVEN, torch.ones(3)), telling(given, EVEN, torch.ones(3))
    assert scores[0].tolist() == pytest.approx([0.6, 0.633333333, 0.435464843], abs=1e-9)
    assert scores[1].tolist() == pytest.approx([0.155555556, -torch.inf, 0.385039003], abs=1e-9)
    assert most_telling(SIGMA, EVEN, torch.ones(3), 2) == [1, 2]
    assert most_telling(SIGMA, EVEN, torch.ones(3), 3) == [1, 2, 0]


def test_a_discount_changes_who_is_first():
    """Client 1 at half: .3167 is less than client 0's .6."""
    assert most_telling(SIGMA, EVEN, torch.tensor([1, 0.5, 1]), 2) == [0, 2]


def test_samples_weigh_the_covariance():
    """All weight on client 2: its own covariance 1.5 / sqrt(1.5) beats .1 and 0."""
    assert most_telling(SIGMA, torch.tensor([0, 0, 1.0]).double(), torch.ones(3), 1) == [2]


def selected(counts: list[list[int]], discount: list[float]) -> list[int]:
    """Who is chosen, two of three, when the embedding says SIGMA."""
    part, profile = FedCor(warmup=0, dimensions=3), profile_of(counts)
    embedding = torch.linalg.cholesky(SIGMA - part.noise**2 * torch.eye(3))
    memory = {"embedding": embedding, "discount": torch.tensor(discount).double()}
    return part.select(memory, round_of(profile, 2, number=1), None).tolist()


def test_selection_heeds_discounts_and_shares():
    """As above: [1, 2] evenly, [0, 2] with client 1 at half; client 2 first if it holds 98 % of samples."""
    assert selected([[1, 1]] * 3, [1, 1, 1]) == [1, 2]
    assert selected([[1, 1]] * 3, [1, 0.5, 1]) == [0, 2]
    assert selected([[1, 0], [1, 0], [98, 0]], [1, 1, 1])[0] == 2


def test_old_changes_weigh_less():
    """Ten rounds ago two clients moved apart, by more than they just moved together."""
    profile = profile_of([[1, 1]] * 2)
    signs = {}
    for gamma in (1.0, 0.1):
        part = FedCor(dimensions=2, mean="zero", noise=0.3, gamma=gamma, history=2)
        memory = part.init_selector(profile)
        memory["changes"] = torch.tensor([[3.0, -3.0], [1.0, 1.0]]).double()
        memory["seen"] = torch.tensor([0, 10])
        first, second = part.fit(memory, round_of(profile, 1, 10), 200)
        signs[gamma] = float(first @ second)
    assert signs[1.0] < 0 < signs[0.1]


def test_equal_scores_go_to_the_lowest_number_and_nobody_is_picked_twice():
    assert most_telling(torch.eye(3).double(), EVEN, torch.ones(3), 3) == [0, 1, 2]
    assert most_telling(torch.zeros(3, 3).double(), EVEN, torch.ones(3), 2) == []


def test_the_likelihood_is_that_of_a_normal_distribution():
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    changes = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).double()
    weight = torch.tensor([0.5, 0.7, 1.0]).double()
    changes[1, 2] = torch.nan  # one client did not answer: the others' part of the matrix is used
    normal = torch.distributions.MultivariateNormal
    expected = 0.0
    for row, w in zip(changes, weight, strict=True):
        told = row.isfinite()
        law = normal(torch.zeros(int(told.sum())).double(), gaussian.covariance(x[told], 0.3))
        constant = told.sum() / 2 * torch.log(torch.tensor(2 * torch.pi))
        expected -= float(w * (law.log_prob(row[told]) + constant))
    assert float(gaussian.surprise(x, changes, weight, 0.3)) == pytest.approx(expected, rel=1e-6)


def test_noise_is_a_deviation():
    """x = (1, 2), noise .1: variances 1 + .01 and 4 + .01, covariance 2."""
    found = gaussian.covariance(torch.tensor([[1.0], [2.0]]).double(), 0.1)
    torch.testing.assert_close(found, torch.tensor([[1.01, 2.0], [2.0, 4.01]]).double())


def test_the_mean_change_is_weighted():
    """1 with weight 1 and 5 with weight 3: mean 4; who was not observed does not count."""
    values = torch.tensor([[1.0, 2.0], [5.0, torch.nan]]).double()
    found = gaussian.centred(values, torch.tensor([1.0, 3.0]).double())
    assert found[:, 0].tolist() == [-3.0, 1.0]
    assert found[0, 1] == 0


def test_a_fit_finds_who_moves_together():
    """Clients 0 and 1 move alike, 2 and 3 against them: after the fit the embedding says so."""
    part, profile = FedCor(dimensions=3, mean="zero", noise=0.3), profile_of([[1, 1]] * 4)
    memory = part.init_selector(profile)
    key = torch.Generator().manual_seed(0)
    common = torch.randn(30, 1, generator=key).double()
    changes = common * torch.tensor([1.0, 1, -1, -1]) + 0.05 * torch.randn(30, 4, generator=key)
    memory["changes"][-30:] = changes
    memory["seen"][-30:] = torch.arange(30)
    found = part.fit(memory, round_of(profile, 2, 30), 300)
    covariance = found @ found.t()
    spread = covariance.diagonal().sqrt()
    correlation = covariance / torch.outer(spread, spread)
    assert correlation[0, 1] > 0.9
    assert correlation[2, 3] > 0.9
    assert correlation[0, 2] < -0.9


def test_the_mean_change_is_taken_off():
    """All clients fall by the same amount each round: nothing is left to explain, and the fit shrinks."""
    profile = profile_of([[1, 1]] * 3)
    sizes = {}
    for mean in ("history", "zero"):
        part = FedCor(mean=mean)
        memory = part.init_selector(profile)
        memory["changes"][-5:] = -1.0
        found = part.fit(memory, round_of(profile, 2, 5), 100)
        sizes[mean] = float(found.norm())
    assert sizes["history"] < sizes["zero"]


def test_schedule():
    """warmup 2, interval 3: random rounds 0-2, polls in rounds 0-3, and a rehearsal at the start of the
    rounds after 3, 6, ... that follow the first fit."""
    part, profile = FedCor(warmup=2, interval=3), profile_of([[1, 1]] * 4)
    rounds = [round_of(profile, 2, number) for number in range(9)]
    assert [now.number for now in rounds if part.candidates({}, now) is not None] == [0, 1, 2, 3, 4, 7]
    assert [now.number for now in rounds if part.rehearse({}, now) is not None] == [4, 7]


def test_loss_changes_are_recorded_from_poll_to_poll():
    part, profile = FedCor(warmup=5, history=3), profile_of([[1, 1]] * 2)
    memory = part.init_selector(profile)
    for number, loss in enumerate([[2.0, 3.0], [1.5, 2.0], [1.0, torch.nan]]):
        memory = part.learn(memory, round_of(profile, 1, number), torch.tensor(loss), None)
    assert memory["changes"][0].isnan().all()
    assert memory["changes"][1].tolist() == [-0.5, -1.0]
    assert memory["changes"][2, 0] == -0.5
    assert memory["changes"][2, 1].isnan()
    assert memory["seen"].tolist() == [0, 1, 2]


def test_a_rehearsal_is_recorded_and_forgives_all_discounts():
    part, profile = FedCor(warmup=0, interval=1, iterations=1), profile_of([[1, 1]] * 2)
    memory = part.init_selector(profile)
    chosen = replace(round_of(profile, 1, 1), selected=torch.tensor([1]))
    memory = part.observe(memory, chosen, updates_of([]))  # it did not answer, and is discounted still
    assert memory["discount"].tolist() == [1, 0.95]
    assert part.observe(memory, replace(chosen, number=0), updates_of([])) is memory  # warm-up
    now = round_of(profile, 1, 2)
    memory = part.learn(memory, now, torch.tensor([2.0, 2.0]), torch.tensor([1.5, 1.0]))
    assert memory["changes"][-1].tolist() == [-0.5, -1.0]
    assert memory["discount"].tolist() == [1, 1]


def test_what_is_learnt_from_a_rehearsal_is_how_it_changed_the_losses():
    """Round 2 rehearses: training changes every client's loss. Rounds 0 and 1 polled what was remembered."""
    method = Method.parse("fedcor(warmup=0, interval=1, history=3, first_iterations=1, iterations=1)")
    state, _ = play(method, tiny_task(), 3)
    memory = state.groups[0].selector
    assert memory["seen"].tolist() == [0, 1, 2]
    assert memory["loss"].isfinite().all()
    assert (memory["changes"][1:] != 0).all()


def test_a_rehearsal_costs_its_messages_and_changes_nothing_else():
    """warmup 0, interval 1: round 0 polls; round 1 polls and fits; round 2 polls, rehearses, polls again.

    With m = 4 of K = 8 and W bytes of model, round 2 sends down K W (poll) + K W (second poll): everybody who
    rehearses or trains holds the model from the first poll. Up go m W (rehearsal) + m W (round),
    each with 20 bytes, and 2 K 8.
    """
    task = tiny_task()
    method = Method.parse("fedcor(warmup=0, interval=1, first_iterations=1, iterations=1)")
    model = task.model.init(0).bytes
    before, _ = play(method, task, 2)
    after, _ = play(method, task, 1, before)
    assert after.bytes_down - before.bytes_down == (8 + 8) * model
    assert after.bytes_up - before.bytes_up == (4 + 4) * (model + 20) + 2 * 8 * 8


def test_what_comes_with_the_model_is_sent_once_to_those_who_rehearsed():
    """SCAFFOLD's c, as large as the model: to those who rehearse or train in round 2, to each once."""
    task, model = tiny_task(), tiny_task().model.init(0).bytes
    selector = "fedcor(warmup=0, interval=1, first_iterations=1, iterations=1)"
    method = Method.parse(f"{selector}+scaffold")
    before, _ = play(method, task, 2)
    after, (report,) = play(method, task, 1, before)
    profile = task.profile(method)
    now = Round(2, profile, 0, profile.eligible, 4)
    rehearsed = set(method.selector.rehearse({}, now).tolist())
    assert rehearsed & set(report.selected.tolist())  # else nothing is shown
    holding = len(rehearsed | set(report.selected.tolist()))
    assert after.bytes_down - before.bytes_down == (8 + 8 + holding) * model


def test_a_poll_of_some_does_not_make_the_model_known_to_others():
    """Client 0 is polled, 1 and 2 rehearse, 2 and 3 train: four get the model, and 0 what the rehearsal made
    of it."""
    method = Method.of(Rehearsing())
    task = tiny_task()
    state, _ = play(method, task, 1)
    assert state.bytes_down == (4 + 1) * task.model.init(0).bytes


@dataclass(frozen=True)
class Rehearsing(Selector, Rehearses):
    """Polls client 0, rehearses with 1 and 2, trains 2 and 3."""

    name: ClassVar[str] = "rehearsing"

    def candidates(self, memory: Memory, now: Round) -> Ids:
        return torch.tensor([0])

    def rehearse(self, memory: Memory, now: Round) -> Ids:
        return torch.tensor([1, 2])

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return torch.tensor([2, 3])


def test_a_rehearsal_is_forgotten():
    """The same cohort trains to the same model, rehearsed or not; client memories are of the round alone."""
    task = tiny_task(cohort=8)  # everybody trains, so choices cannot differ
    rehearsing, plain = (
        play(Method.parse(f"{selector}+scaffold"), task, 4)[0] for selector in (QUICK, "uniform")
    )
    torch.testing.assert_close(rehearsing.groups[0].weights.params, plain.groups[0].weights.params)
    torch.testing.assert_close(rehearsing.clients[3]["c"], plain.clients[3]["c"])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_law_beyond_the_warm_up(check):
    """The contract's runs are shorter than the default warm-up; these fit and rehearse."""
    check(Method.parse(QUICK))


@pytest.mark.parametrize("other", ["cafa", "clust_psi_pfl", "feddyn", "fedgwc(tolerance=0.9)"])
def test_rehearsals_combine(other):
    state, reports = play(Method.parse(f"{QUICK}+{other}"), tiny_task(), 5)
    assert all(len(report.answered) for report in reports)
    assert all(group.weights.params.isfinite().all() for group in state.groups)
