"""By which number methods are ranked, and what a leaderboard shows beside accuracy."""

import math
from pathlib import Path

import pytest
from rich.console import Console

from fedcohort.cli.tables import class_table, leaderboard
from fedcohort.core.evaluate import VALIDATION
from fedcohort.runs.evaluation import Evaluation, Metric
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import (
    BASELINE,
    Outcome,
    Standing,
    aside_columns,
    baseline,
    lowest_recall,
    nature,
    rank,
    rankings,
    spelled,
    verdict,
)
from fedcohort.util.errors import UserError

ACCURACY, BALANCED, LOSS = "global.accuracy", "global.balanced_accuracy", "global.loss"
NUMBERS = {  # of each method: accuracy, balanced accuracy and loss disagree about the best
    "constant": {ACCURACY: 0.9, BALANCED: 0.5, LOSS: 0.4, "global.majority": 0.9, "personal.majority": 0.95},
    "fair": {ACCURACY: 0.8, BALANCED: 0.8, LOSS: 0.5},
    "calibrated": {ACCURACY: 0.7, BALANCED: 0.7, LOSS: 0.3},
}


def outcomes(ranked_by: str) -> list[Outcome]:
    return [Outcome(name, 0, Path(), own, ranked_by=ranked_by) for name, own in NUMBERS.items()]


@pytest.mark.parametrize(
    ("metric", "order"),
    [
        (ACCURACY, ["constant", "fair", "calibrated"]),
        (BALANCED, ["fair", "calibrated", "constant"]),
        (LOSS, ["calibrated", "constant", "fair"]),
    ],
)
def test_the_metric_ranks(metric: str, order: list[str]) -> None:
    standings = rank(outcomes(metric))
    assert [standing.method for standing in standings] == order
    assert {standing.to_dict()["ranked_by"] for standing in standings} == {metric}


def test_who_has_no_such_number_is_last_and_runs_that_disagree_are_ranked_by_accuracy() -> None:
    few = [*outcomes(LOSS), Outcome("silent", 0, Path(), {ACCURACY: 1.0}, ranked_by=LOSS)]
    assert rank(few)[-1].method == "silent"
    mixed = [*outcomes(LOSS), Outcome("other", 0, Path(), {ACCURACY: 0.85}, ranked_by=BALANCED)]
    assert [standing.method for standing in rank(mixed)] == ["constant", "other", "fair", "calibrated"]


@pytest.mark.parametrize("metric", Metric.__args__)  # type: ignore[attr-defined]
def test_of_every_metric_it_is_known_what_is_better(metric: str) -> None:
    assert nature(metric)[0] is (not metric.endswith("loss"))
    assert spelled(metric).startswith(("global ", "personal "))


def test_a_constant_answer_stands_below_all_methods() -> None:
    standings = rank(outcomes(ACCURACY))
    assert baseline(standings) == {"global.accuracy": 0.9, "personal.accuracy": 0.95}
    *_, last = shown(leaderboard(standings, 3)).rstrip().split("\n")
    assert last.split() == [*BASELINE.split(), "90.0%", "95.0%"]
    bare = rank([Outcome("fedavg", 0, Path(), {ACCURACY: 0.5})])
    assert baseline(bare) == {}
    assert BASELINE not in shown(leaderboard(bare, 3))


def recognised(**recall: float) -> Outcome:
    numbers = {f"global.accuracy[{name}]": value for name, value in recall.items()}
    return Outcome("fedavg", 0, Path(), {ACCURACY: 0.5, BALANCED: 0.4, "global.auroc": 0.6543, **numbers})


def test_classes_have_a_table_of_their_own() -> None:
    text = shown(class_table(rank([recognised(ill=0.25, well=1.0)])))
    assert text.rstrip().split("\n")[-1].split() == ["fedavg", "40.0%", "0.654", "25%", "100%"]
    assert "ill" in text
    many = {f"class{number}": number / 20 for number in range(1, 20)} | {"nobody": math.nan}
    assert "5% of class1\n" in shown(class_table(rank([recognised(**many)])))
    assert class_table(rank([Outcome("fedavg", 0, Path(), {ACCURACY: 0.5})])) is None
    assert lowest_recall(rank([recognised(nobody=math.nan)])[0]) == "–"


def shown(table: object) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def test_what_validation_samples_chose_fits_a_terminal() -> None:
    """The widest there is: groups that are known, several seeds, two classes."""
    own = {ACCURACY: 0.93, "personal.accuracy": 0.93, "ad": 0.07, "groups": 6.0, "rand": 0.9, BALANCED: 0.9}
    own |= {"bytes_up": 1e7, "bytes_down": 1e9, "global.macro_f1": 0.9, "global.auroc": 0.9}
    own |= {"global.average_precision": 0.9, "global.accuracy[ill]": 0.9, "global.accuracy[well]": 0.9}
    ranked_by = f"validation.{ACCURACY}"
    own |= {ranked_by: 0.9, "chosen_round": 85.0, "global.majority": 0.6}
    runs = [
        Outcome(
            name,
            seed,
            Path(),
            {key: value * (1 + seed / 50) for key, value in own.items()},
            "",
            {},
            ranked_by,
        )
        for name in ("fedavg", "fedgwc(tolerance=0.0001)")
        for seed in (0, 1)
    ]
    for table in (leaderboard(rank(runs), 100), class_table(rank(runs))):
        text = shown(table)
        assert "…" not in text
        assert "fedavg" in text
    assert "ill  well" in text
    assert [key for key, *_ in aside_columns(rank(runs))] == ["rand", "bytes_up", "bytes_down"]


def test_a_metric_must_be_possible() -> None:
    check(Evaluation(metric="global.auroc"), 2)
    check(Evaluation(), 3, "withheld")
    check(Evaluation(metric="personal.worst_accuracy"), 3, "withheld")
    with pytest.raises(UserError, match=r"a number of two classes, and there are 3 here: use global"):
        check(Evaluation(metric="global.auroc"), 3)
    for counts in ("noised", "withheld"):
        with pytest.raises(UserError, match=r"do not tell what personal\.macro_f1 needs, their labels"):
            check(Evaluation(metric="personal.macro_f1"), 3, counts)


def check(wanted: Evaluation, classes: int, counts: str = "exact") -> None:
    asked = {"data": {"source": "synthetic", "classes": classes}, "privacy": {"counts": counts}}
    experiment = Experiment.of({"method": "fedavg", **asked})
    wanted.check(experiment.methods[0], experiment.task(0))


def test_the_metric_is_a_setting_and_runs_from_before_it_keep_their_names() -> None:
    plain, other = (Experiment.of({"method": "fedavg", "evaluate": own}) for own in ({}, {"metric": LOSS}))
    assert "metric" not in plain.table()["evaluate"]
    assert Experiment.of(other.table()).evaluation.ranked_by == LOSS
    with pytest.raises(UserError, match=r"evaluate.metric.*global.balanced_accuracy"):
        Experiment.of({"method": "fedavg", "evaluate": {"metric": "balanced"}})


def test_what_needs_all_data_in_one_place_is_never_best() -> None:
    numbers = {"centralised": 0.9, "fedavg": 0.8, "local_only": 0.7}
    outcomes = [Outcome(method, 0, Path(), {"global.accuracy": value}) for method, value in numbers.items()]
    (ranked,) = rankings(outcomes, {"centralised"})
    assert [standing.method for standing in ranked] == ["fedavg", "local_only", "centralised"]
    assert verdict(ranked).startswith("fedavg is best by global accuracy, 80.0%")


def test_who_is_best_on_validation_samples_need_not_be_on_test_samples() -> None:
    ranked = f"{VALIDATION}global.accuracy"
    standings = [
        Standing(method, (0,), {ranked: judged, "global.accuracy": tested}, {}, ranked_by=ranked)
        for method, judged, tested in (("fedavg", 0.9, 0.7), ("fedprox", 0.8, 0.75))
    ]
    words = "fedavg is best by global accuracy on validation samples, and has 70.0% on test samples"
    assert verdict(standings).startswith(words)
