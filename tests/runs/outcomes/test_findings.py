"""What is said first of a method that learnt nothing, and when it is said."""

import json
import math
from pathlib import Path

import pytest

from fedcohort.cli.progress import Silent
from fedcohort.cli.run import _show_outcomes
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.report.evidence import gather
from fedcohort.report.served import served_cards
from fedcohort.report.standings import leaderboard_card
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.findings import findings
from fedcohort.runs.outcomes.over_rounds import diverged
from fedcohort.runs.outcomes.standings import Outcome, rank, remarks, verdict
from fedcohort.runs.run import run
from fedcohort.stats.metrics import surpasses

GOOD = {
    "global.accuracy": 0.9,
    "global.majority": 0.6,
    "global.samples": 500.0,
    "global.loss": 0.3,
    "global.accuracy[a]": 0.9,
    "global.accuracy[b]": 0.9,
    "global.named[a]": 0.6,
    "global.named[b]": 0.4,
    "personal.accuracy": 0.9,
    "personal.majority": 0.8,
    "diverged": 0.0,
}


def kinds(*changes: dict[str, float]) -> list[str]:
    return [
        found.kind
        for found in findings("fedavg", {seed: {**GOOD, **own} for seed, own in enumerate(changes)})
    ]


def test_nothing_is_wrong_with_a_method_that_learns() -> None:
    assert kinds({}) == []
    bare = {0: {"global.accuracy": 0.5, "global.loss": 1.0}}  # of an older fedcohort, or labels are withheld
    assert findings("fedavg", bare) == ()
    assert findings("fedavg", {0: dict.fromkeys(GOOD, math.nan)}) == ()  # nobody has test samples


def test_a_constant_answer_is_not_surpassed_by_luck() -> None:
    """Of 100 samples, where always 'a' gets 60: 67 may be luck (one standard error is 4.9), 69 not."""
    few = {"global.samples": 100.0}
    assert kinds({**few, "global.accuracy": 0.6}) == ["constant"]
    assert kinds({**few, "global.accuracy": 0.67}) == ["constant"]
    assert kinds({**few, "global.accuracy": 0.69}) == []
    assert kinds(*[{**few, "global.accuracy": 0.65}] * 4) == []  # 400 samples
    assert surpasses(0.69, 0.6, 100)
    assert not surpasses(0.68, 0.6, 100)


def test_a_class_that_is_never_an_answer() -> None:
    """Not one that is found never but answered in vain, or has no samples; with most seeds, or it is luck."""
    never = {"global.accuracy[b]": 0.0, "global.named[b]": 0.0}
    assert kinds(never) == ["never"]
    assert kinds({**never, "global.named[b]": 0.1}) == []
    assert kinds({**never, "global.accuracy[b]": math.nan}) == []
    assert kinds(never, {}, {}) == []
    (found,) = findings("fedavg", {seed: {**GOOD, **own} for seed, own in ((4, never), (7, {}))})
    assert found.seeds == (4,)
    assert "never answers 'b' with seed 4" in str(found)
    assert "class weights (balanced)" in found.cure


def test_clients_own_common_answers() -> None:
    assert kinds({"personal.accuracy": 0.8}) == ["own constant"]
    assert kinds({"personal.accuracy": 0.8, "global.accuracy": 0.5}) == ["constant"]


def test_what_diverged_has_no_other_fault() -> None:
    never = {"global.accuracy[b]": 0.0, "global.named[b]": 0.0, "global.accuracy": 0.1}
    assert kinds({**never, "diverged": 1.0}) == ["diverged"]
    (found,) = findings("fedavg", {0: {**GOOD, "diverged": 1.0, "global.loss": math.nan}, 1: GOOD})
    assert str(found) == (
        "fedavg diverged with seed 0, its loss is no number any more: try a tenth of local.lr."
    )


FALLING = [2.0, 1.5, 1.0, 0.8, 0.6, 0.5]


@pytest.mark.parametrize(
    ("training", "evaluated", "constant", "is_so"),
    [
        (FALLING, [2.0, 1.0], False, False),
        ([*FALLING[:5], math.inf], [2.0, 1.0], False, True),
        ([2.0, math.inf], [2.0, 1.0], False, True),  # two rounds have no last third
        (FALLING, [2.0, math.nan], False, True),
        (FALLING[::-1], [1.0, 2.0], False, False),  # it grows, and is no more than of guessing
        ([0.5, 0.8, 1.5, 2.0, 3.0, 4.0], [1.0, 2.0], False, True),
        ([200.0, 20.0, 9.0, 9.0, 9.0, 9.0], [300.0, 30.0], False, False),  # a sure perceptron that is right
        (FALLING, [2.4, 2.5], True, True),
        (FALLING, [2.5, 2.4], True, False),
        (FALLING, [9.0, 5.0], True, True),
        (FALLING, [1.0, 2.0], True, False),
        ([], [], True, False),
    ],
)
def test_which_losses_mean_that_training_diverged(
    training: list[float], evaluated: list[float], constant: bool, is_so: bool
) -> None:
    """Ten classes: guessing loses 2.3."""
    assert diverged(training, evaluated, constant, 10) is is_so


def test_the_verdict_is_about_the_best_method_and_the_rest_follows() -> None:
    lost = {"diverged": 1.0, "global.accuracy": 0.2}
    mixed = rank([Outcome("fedavg", 0, Path(), GOOD), Outcome("fedprox", 0, Path(), {**GOOD, **lost})])
    assert verdict(mixed) == (
        "fedavg is best by global accuracy, 90.0%; always giving the most common answer gets 60.0%."
    )
    assert remarks(mixed) == ["fedprox diverged, its loss grows: try a tenth of local.lr."]
    both = rank([Outcome(name, 0, Path(), {**GOOD, **lost}) for name in ("fedavg", "fedprox")])
    assert verdict(both).startswith(
        "Every method diverged, so numbers tell little of any. fedavg diverged, its loss grows: "
    )
    assert remarks(both) == ["fedprox diverged, its loss grows: try a tenth of local.lr."]
    poor = {"global.accuracy": 0.6}
    for faults, first in (
        ((poor, poor), "No method learnt anything here. fedavg answers 60.0% right"),
        ((poor, lost), "No method is of use here. fedavg answers 60.0% right"),
        ((poor, {}), "fedprox is best by global accuracy, 90.0%"),
    ):
        named = zip(("fedavg", "fedprox"), faults, strict=True)
        outcomes = [Outcome(name, 0, Path(), {**GOOD, **fault}) for name, fault in named]
        assert verdict(rank(outcomes)).startswith(first)
    assert both[0].to_dict()["findings"] == [
        {
            "kind": "diverged",
            "seeds": [0],
            "sentence": "fedavg diverged, its loss grows: try a tenth of local.lr.",
        }
    ]


WILD = {
    "rounds": 4,
    "cohort": 4,
    "data": {"source": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 0.5},
    "model": {"name": "mlp", "widths": [16]},
    "local": {"lr": 500.0},
    "method": ["fedavg"],
}


@pytest.mark.parametrize("engine", [ReferenceEngine, PoolEngine])
def test_a_learning_rate_far_too_high_is_noticed(engine: type[ReferenceEngine]) -> None:
    asked = Experiment.of(WILD)
    wild = run("fedavg", asked.task(0), 4, engine=engine).metrics
    assert [found.kind for found in findings("fedavg", {0: wild})] == ["diverged"]
    tame = Experiment.of({**WILD, "rounds": 8, "local": {"lr": 0.1, "batch": 16, "epochs": 2}})
    assert findings("fedavg", {0: run("fedavg", tame.task(0), 8, engine=engine).metrics}) == ()


def test_leaderboard_report_and_json_say_it_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Experiment.of(WILD)
    home, outcomes = compare(asked, tmp_path, Silent())
    _show_outcomes(outcomes, asked, as_json=False)
    assert capsys.readouterr().out.startswith("fedavg diverged, its loss ")
    _show_outcomes(outcomes, asked, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["verdicts"][0]["sentence"].startswith("fedavg diverged, ")
    assert told["leaderboard"][0]["findings"][0]["kind"] == "diverged"
    evidence = gather([home])
    assert leaderboard_card(evidence).sentences[0].startswith("fedavg diverged, ")
    (card,) = served_cards(evidence, evidence.runs[0])
    assert str(card.sentences[0]).startswith("fedavg diverged, ")
    assert "hard ones" not in " ".join(map(str, card.sentences))
