"""Power-of-Choice: d candidates drawn by samples, the m of highest loss train."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from fedcohort.core.engine import ModelTrial
from fedcohort.core.method import Method
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.power_of_choice import PowerOfChoice
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError
from support.toy import profile_of, round_of, updates_of

EIGHT = profile_of([[1, 1]] * 8)
LOSSES = torch.full((8,), torch.nan)
LOSSES[[4, 1, 7, 2]] = torch.tensor([0.7, 1.9, 0.7, 1.2])


@pytest.mark.parametrize(("cohort", "chosen"), [(2, [1, 2]), (3, [1, 2, 4]), (4, [1, 2, 4, 7])])
def test_the_highest_losses_train(cohort, chosen):
    """F = .7, 1.9, .7, 1.2 at clients 4, 1, 7, 2; the tie of 4 and 7 goes to the lower number."""
    assert PowerOfChoice().select({}, round_of(EIGHT, cohort), LOSSES).tolist() == chosen


def test_rpow_ranks_by_the_last_loss_and_prefers_the_unseen():
    """v = (inf, .3, inf, .9, .5); of the candidates 1, 3, 2 the two best are 2 and 3."""
    loss = torch.tensor([torch.inf, 0.3, torch.inf, 0.9, 0.5])
    assert PowerOfChoice(variant="rpow-d").highest(loss, torch.tensor([1, 3, 2]), 2).tolist() == [2, 3]


def test_rpow_draws_among_the_unseen():
    part = PowerOfChoice(variant="rpow-d", d=8)
    firsts = set()
    for seed in range(30):
        profile = replace(EIGHT, seed=seed)
        chosen = part.select(part.init_selector(profile), round_of(profile, 1), None)
        firsts.add(int(chosen))
    assert len(firsts) > 4


def test_rpow_remembers_the_mean_loss_of_the_steps():
    part = PowerOfChoice(variant="rpow-d")
    trace = torch.tensor([[1.0, 2.0], [3.0, torch.nan]])
    memory = part.init_selector(EIGHT)
    after = part.observe(memory, round_of(EIGHT, 2), updates_of([1, 4], trace))
    assert after["loss"][[1, 4]].tolist() == [1.5, 3.0]
    assert after["loss"][0].isinf()
    assert memory["loss"].isinf().all()


def test_candidates_are_drawn_by_samples():
    """p = (.5, .3, .2), d = 2, without replacement: client 0 is in with .5 + .3 * .5 / .7 + .2 * .5 / .8."""
    draws: Counter[int] = Counter()
    chosen: Counter[int] = Counter()
    profile, losses = profile_of([[50, 0], [30, 0], [20, 0]]), torch.tensor([0.1, 0.5, 0.9])
    for number in range(2000):
        drawn = PowerOfChoice(d=2).candidates({}, round_of(profile, 1, number))
        draws.update(drawn.tolist())
        chosen.update(PowerOfChoice(d=2).highest(losses, drawn, 1).tolist())
    expected = (0.839285714, 0.675, 0.485714286)
    assert [draws[client] / 2000 for client in range(3)] == pytest.approx(expected, abs=0.04)
    expected = (0, 0.514285714, 0.485714286)  # client 0 has the lowest loss and is never drawn alone
    assert [chosen[client] / 2000 for client in range(3)] == pytest.approx(expected, abs=0.04)


def test_d_below_the_cohort_is_refused_or_raised():
    now = round_of(EIGHT, 4)
    with pytest.raises(UserError, match=r"d=2 clients, fewer than the cohort of 4.*d_policy='clip'"):
        PowerOfChoice(d=2).candidates({}, now)
    assert len(PowerOfChoice(d=2, d_policy="clip").candidates({}, now)) == 4


def test_how_many_are_asked():
    """By default twice the cohort, never more than there are."""
    assert len(PowerOfChoice().candidates({}, round_of(EIGHT, 3))) == 6
    assert len(PowerOfChoice().candidates({}, round_of(EIGHT, 5))) == 8
    assert PowerOfChoice(variant="rpow-d").candidates({}, round_of(EIGHT, 3)) is None


def test_adapow_shrinks_d_to_the_cohort():
    """From d = 8 to m = 2 in 4 rounds: 8, 6.5, 5, 3.5, 2 and 2 for good; half a client is one."""
    part = PowerOfChoice(d=8, until=4)
    asked = [len(part.candidates({}, round_of(EIGHT, 2, number))) for number in range(6)]
    assert asked == [8, 7, 5, 4, 2, 2]


def test_as_many_candidates_as_wanted_makes_it_a_draw_by_samples():
    """d = m: the losses decide nothing but the order."""
    part, now = PowerOfChoice(d=3), round_of(EIGHT, 3)
    asked = part.candidates({}, now)
    losses = torch.full((8,), torch.nan)
    losses[asked] = torch.tensor([0.1, 0.3, 0.2])
    assert sorted(part.select({}, now, losses).tolist()) == asked.tolist()
    assert asked.equal(now.draw("candidates", now.profile.size, 3).sort().values)


def test_the_first_round_of_the_authors_code():
    part = PowerOfChoice(first_round="uniform")
    assert part.candidates({}, round_of(EIGHT, 3, 0)) is None
    assert len(part.select({}, round_of(EIGHT, 3, 0), None)) == 3
    assert part.candidates({}, round_of(EIGHT, 3, 1)) is not None


def test_a_candidate_that_does_not_answer_is_out():
    losses = LOSSES.clone()
    losses[1] = torch.nan
    assert PowerOfChoice().select({}, round_of(EIGHT, 3), losses).tolist() == [2, 4, 7]


def test_traffic():
    """pow-d: 6 of 8 get the model and answer 8 bytes; rpow-d: the loss comes with the updates anyway."""
    task = tiny_task(cohort=3)
    plain, polled, reported = (
        play(Method.parse(text), task, 1)[0]
        for text in ("uniform", "power_of_choice", "power_of_choice(variant='rpow-d')")
    )
    assert polled.bytes_down == 2 * plain.bytes_down
    assert polled.bytes_up - plain.bytes_up == 8 * 6
    assert (reported.bytes_up - plain.bytes_up, reported.bytes_down - plain.bytes_down) == (0, 0)


def test_cpow_polls_a_batch():
    """One example instead of all: the loss is that of a single row, and another one next round."""
    task = tiny_task()
    weights = task.model.init(0)
    engine, trial = ReferenceEngine(task), ModelTrial([weights], torch.tensor([0]))
    rows = task.federation.train.rows(0)
    each = engine.predict(weights, task.federation.train, rows)[0]
    drawn = {float(engine.losses(trial, 1, number)) for number in range(10)}
    assert len(drawn) > 3
    assert all(min(abs(each - loss)) < 1e-5 for loss in drawn)
    assert float(engine.losses(trial, 10**6, 3)) == pytest.approx(float(each.mean()), abs=1e-5)
    assert PowerOfChoice(variant="cpow-d").poll_samples(round_of(EIGHT, 2)) == EIGHT.local.batch


@pytest.mark.parametrize("variant", ["cpow-d", "rpow-d"])
def test_variants_run(variant):
    _, reports = play(Method.parse(f"power_of_choice(variant='{variant}')"), tiny_task(), 3)
    assert all(len(report.answered) == 4 for report in reports)
