"""The first screen, on numbers small enough to check by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedcohort.report.actions import actions, numbered
from fedcohort.report.conclusion import Conclusion
from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Led
from fedcohort.report.summary import summary_cards
from support.report_evidence import a_run, evidence_of

ALONE = ("local_only", (0.4, 0.42, 0.44))


def compared(*methods: tuple[str, tuple[float, ...]], **metrics: float) -> Conclusion:
    """Methods with the global accuracies of their seeds, 121 test samples each."""
    runs = [
        replace(run, metrics={**run.metrics, "global.samples": 121.0, **metrics})
        for method, values in methods
        for run in (a_run(method, seed, value) for seed, value in enumerate(values))
    ]
    return Conclusion(evidence_of(*runs))


def words(conclusion: Conclusion) -> str:
    sentences = (each if isinstance(each, str) else " ".join(each).strip() for each in conclusion.sentences)
    return "\n".join(sentences)


def to_do(conclusion: Conclusion) -> str:
    return "\n".join(" ".join(each).strip() for each in numbered(conclusion))


def test_who_should_use_what_and_how_sure_that_is() -> None:
    """0.80, 0.82, 0.84: mean 0.82, standard error 0.02 / sqrt(3), t 4.3027: from 0.7703 to 0.8697."""
    conclusion = compared(("fedavg", (0.6, 0.63, 0.62)), ("fedprox", (0.8, 0.82, 0.84)), ALONE)
    assert isinstance(next(conclusion.sentences), Led)
    first, beside = words(conclusion).splitlines()
    assert first.startswith("Use fedprox, one model for everybody: global accuracy 82.0% (95 %: 77.0% to 87.")
    assert first.endswith("significantly ahead of every other method (paired t-tests, Holm, p < 0.05).")
    assert "every client alone gets 42.0% (95 %: 37.0% to 47.0%)" in beside
    assert "all data in one place was not run" in beside


def test_one_seed_has_the_interval_of_its_test_samples() -> None:
    """Wilson's, of nine in ten of 121."""
    conclusion = compared(("fedavg", (0.9,)))
    assert words(conclusion).startswith(
        "Use fedavg, one model for everybody: global accuracy 90.0% (95 %: 83.4% to "
    )
    assert "1. Run 3 seeds or more before you rely on a difference." in to_do(conclusion)
    assert "2. Add local_only" in to_do(conclusion)
    assert to_do(conclusion).splitlines()[-1].startswith("3. Take the model into use: fedcohort export ")


def test_training_alone_is_the_headline_where_it_wins() -> None:
    conclusion = compared(("local_only", (0.8, 0.82, 0.84)), ("fedavg", (0.6, 0.63, 0.62)))
    assert words(conclusion).startswith("Let every client train alone (local_only): global accuracy 82.0%")
    assert "against 61.7% (95 %: 57.9% to 65.5%) with fedavg, significantly ahead" in words(conclusion)
    assert "every client alone" not in words(conclusion).splitlines()[1]


def test_all_data_in_one_place_is_beside_it_and_never_advised() -> None:
    conclusion = compared(("fedavg", (0.6, 0.6, 0.6)), ("centralised", (0.9, 0.9, 0.9)))
    assert words(conclusion).startswith("Use fedavg")
    assert "all data in one place gets 90.0% (95 %: 90.0% to 90.0%)" in words(conclusion)


def test_all_data_in_one_place_alone_is_told_as_what_it_is() -> None:
    conclusion = compared(("centralised", (0.9,)))
    assert words(conclusion).startswith("Use centralised, which needs all data in one place")
    assert summary_cards(conclusion.evidence)


def test_a_model_that_learnt_nothing_is_not_to_be_used() -> None:
    conclusion = compared(("fedavg", (0.3, 0.31, 0.3)), **{"global.majority": 0.4})
    assert "always giving the most common answer gets 40.0%" in words(conclusion)
    assert "Use fedavg" not in words(conclusion)
    assert to_do(conclusion) == "1. Try more rounds, another local.lr, or class weights (balanced)."


def test_a_lead_that_may_be_luck_asks_for_more_seeds() -> None:
    conclusion = compared(("fedavg", (0.6, 0.8, 0.7)), ("fedprox", (0.65, 0.72, 0.7)), ALONE)
    assert any(
        "Run more seeds to tell which is better, fedavg or fedprox." in each.text
        for each in actions(conclusion)
    )


def test_who_still_gains_is_to_train_longer() -> None:
    """Ten evaluations: the last two are 0.05 above the two before."""
    flat, rising = np.full(10, 0.5), np.array([0.5] * 8 + [0.55] * 2)
    for values, told in ((flat, False), (rising, True)):
        run = a_run(curves={"global.accuracy": (np.arange(10.0), values)})
        found = [each.text for each in actions(Conclusion(evidence_of(run)))]
        assert ("Train longer: fedavg still gained 5.0 points at its end." in found) is told


def test_clients_that_are_badly_served_are_looked_at_first() -> None:
    found = [each.text for each in actions(compared(("fedavg", (0.9, 0.9, 0.9)), ALONE))]
    assert "Look first at those served worse than luck explains, 1 of 4 clients (Who is served)." in found
    assert any("fedavg+finetune" in text for text in found)


@pytest.mark.parametrize(("recall", "told"), [(0.1, True), (0.6, False)])
def test_a_class_that_is_missed_is_named(recall: float, told: bool) -> None:
    metrics = {"global.accuracy[y]": recall, "global.balanced_accuracy": 0.55}
    found = [each.text for each in actions(compared(("fedavg", (0.9,)), **metrics))]
    assert any(text.startswith("Mind class 'y': 10% of its test samples") for text in found) is told


def test_a_run_that_goes_on_is_waited_for() -> None:
    run: Run = a_run(complete=False)
    conclusion = Conclusion(evidence_of(run))
    assert to_do(conclusion).startswith("1. 1 run has not ended: wait, or continue.")
    assert "export" not in to_do(conclusion)


def test_nothing_is_advised_where_nothing_is_known() -> None:
    run = a_run(metrics={}, curves={})
    (card,) = summary_cards(Evidence((run,), {"data0": "no labels"}))
    assert card.sentences == [
        "No accuracy is known: these runs had no test samples, or have not been evaluated yet."
    ]


def test_every_method_is_in_the_picture_with_its_interval() -> None:
    conclusion = compared(
        ("fedavg", (0.6, 0.63, 0.62)), ("fedprox", (0.8, 0.82, 0.84)), **{"global.majority": 0.3}
    )
    _, card = summary_cards(conclusion.evidence)
    assert card.figure is not None
    line, dots = card.figure.data
    assert list(line.x) == [0.3, 0.3]
    assert list(dots.y) == ["fedavg", "fedprox"]
    assert dots.x.tolist() == pytest.approx([0.6167, 0.82], abs=1e-4)
    assert dots.error_x.array.tolist() == pytest.approx([0.0379, 0.0497], abs=1e-4)
