"""Advice: numbers that were worked out by hand, what filters leave out, and what it admits not to know."""

import csv
from importlib.resources import files

import numpy as np
import pytest

from fedcohort.core.method import Method
from fedcohort.runs.advice import Advice, Measured, advise
from fedcohort.runs.advice.evidence import FEATURES, NAMES, features_of, shipped
from fedcohort.runs.advice.prediction import NEAR, expected, nearness
from fedcohort.util.errors import UserError
from support.evidence import table

EVEN, SPLIT = [[5, 5], [5, 5]], [[10, 0], [0, 10]]  # skew 0 and 1
THREE = table(
    (0.0, {"scaffold": 0.10, "ifca": 0.00}),
    (1.0, {"scaffold": 0.00, "ifca": 0.30}),
    (2.0, {"scaffold": 9.00, "ifca": 9.00}),  # the farthest of three counts nothing
)


def at(skew: float, evidence: Measured = THREE) -> np.ndarray:
    features = dict.fromkeys(FEATURES, 2.0) | {"emd_share": skew}
    return nearness(evidence, features, None)


def test_what_counts_tell() -> None:
    told = features_of([[8, 2], [0, 0], [2, 8], [5, 0]], cohort=2)
    assert {name: told[name] for name in ("clients", "classes", "cohort")} == {
        "clients": 3,
        "classes": 2,
        "cohort": 2,
    }
    assert told["samples"] == pytest.approx(25 / 3)
    assert told["share"] == pytest.approx(2 / 3)
    assert told["held"] == pytest.approx(2 / 3)  # two of them both classes, one no more than one
    assert told["emd_share"] == pytest.approx(told["label_emd"] / (0.6 * 0.8 + 0.4 * 1.2))
    assert told["label_emd"] == pytest.approx((10 * 0.4 + 10 * 0.8 + 5 * 0.8) / 25)  # the pool is 0.6, 0.4


def test_the_nearest_count_by_their_distance() -> None:
    """At 0.25 the distances are as 1, 3 and 7: (1 - 1/343)^3 and (1 - 27/343)^3, and the last counts 0."""
    near, far = (342 / 343) ** 3, (316 / 343) ** 3
    assert at(0.25) == pytest.approx([near / (near + far), far / (near + far), 0])
    assert at(0.5) == pytest.approx([0.5, 0.5, 0])


def test_gain_interval_and_who_did_best() -> None:
    scaffold, ifca = (
        next(each for each in expected(THREE, at(0.25), list(THREE.gain)) if each.method == method)
        for method in ("scaffold", "ifca")
    )
    assert scaffold.gain == pytest.approx(0.1 * 0.5590, abs=1e-5)
    assert ifca.gain == pytest.approx(0.3 * 0.4410, abs=1e-5)
    assert (scaffold.low, scaffold.high) == (0.0, 0.1)
    assert (scaffold.best, scaffold.tried) == (1, 2)
    assert not scaffold.sure


def test_the_interval_leaves_out_a_tenth_of_the_weight_at_each_end() -> None:
    """Gains 0 to 9 of even weight stand at 5%, 15%, ... of it: 10% and 90% lie half-way between two."""
    many = table(*((1.0, {"scaffold": float(gain)}) for gain in range(10)))
    (found,) = expected(many, np.full(10, 0.1), ["scaffold"])
    assert (found.low, found.high, found.gain) == pytest.approx((0.5, 8.5, 4.5))


def test_only_the_nearest_count() -> None:
    many = table(*((number / 10, {"scaffold": 0.1}) for number in range(2 * NEAR)))
    assert np.count_nonzero(at(0.0, many)) == NEAR


def test_numbers_are_compared_by_magnitude() -> None:
    rows = [{**names} for names in THREE.names]
    evidence = Measured(
        tuple(rows),
        np.array([[samples if name == "samples" else 2.0 for name in FEATURES] for samples in (1, 10, 1000)]),
        THREE.epsilon,
        THREE.accuracy,
        THREE.gain,
        THREE.error,
        {},
    )
    here = dict.fromkeys(FEATURES, 2.0) | {"samples": 100.0}
    weights = nearness(evidence, here, None)
    assert weights[1] == pytest.approx(weights[2])  # ten times as many, or a tenth


def test_the_best_allowed_method_is_advised() -> None:
    gains = table(*((skew, {"scaffold": 0.1, "ifca": 0.2}) for skew in (0.0, 1.0, 2.0)))
    free, one = (advise(SPLIT, 2, one_model=only, evidence=gains) for only in (False, True))
    assert (free.best.method, one.best.method) == ("ifca", "scaffold")
    assert "ifca" not in [each.method for each in one.ranking]
    assert free.runner_up is not None
    assert free.to_dict()["method"] == "ifca"


@pytest.mark.parametrize(
    ("method", "one"),
    [
        ("fedavg", True),
        ("fedlecc+scaffold", True),
        ("fedconcat", True),
        ("ifca", False),
        ("local_only", False),
    ],
)
def test_whether_all_clients_get_the_same_model(method: str, one: bool) -> None:
    assert Method.parse(method).one_model is one


def test_a_method_that_may_be_worse_is_not_called_better() -> None:
    doubtful = advise(EVEN, 2, one_model=True, evidence=THREE)
    assert doubtful.best.method == "scaffold"
    assert "no method is surely better than fedavg here" in doubtful.words
    sure = advise(EVEN, 2, evidence=table(*((skew, {"scaffold": 0.05}) for skew in (0.0, 0.1, 0.2))))
    assert (
        sure.words
        == "scaffold: +5.0 points of accuracy over fedavg (+5.0 to +5.0 on 80% of such federations)"
    )
    gains = ({"scaffold": gain, "fedprox": 0.01} for gain in (-0.1, 0.9, 0.3))
    mixed = advise(EVEN, 2, evidence=table(*zip((0.0, 0.1, 0.2), gains, strict=True)))
    assert mixed.words.startswith("scaffold: ")
    assert mixed.words.endswith("; it may be worse, too")  # fedprox never was
    nothing = advise(EVEN, 2, evidence=table(*((skew, {"scaffold": 0.0}) for skew in (0.0, 0.1, 0.2))))
    assert nothing.words.startswith("fedavg: nothing else did better")


def test_noised_counts_are_judged_by_runs_with_noised_counts() -> None:
    def both(epsilon: float | None) -> Advice:
        exact = table(*((skew, {"scaffold": 0.1, "ifca": 0.0}) for skew in (0.0, 0.1, 0.2)))
        noised = table(*((skew, {"scaffold": 0.0, "ifca": 0.1}) for skew in (0.0, 0.1, 0.2)), epsilon="1.0")
        joined = Measured(
            exact.names + noised.names,
            np.concatenate([exact.features, noised.features]),
            np.concatenate([exact.epsilon, noised.epsilon]),
            np.concatenate([exact.accuracy, noised.accuracy]),
            {name: np.concatenate([exact.gain[name], noised.gain[name]]) for name in exact.gain},
            {name: np.concatenate([exact.error[name], noised.error[name]]) for name in exact.error},
            exact.about,
        )
        return advise(SPLIT, 2, epsilon=epsilon, evidence=joined)

    assert (both(None).best.method, both(1.0).best.method) == ("scaffold", "ifca")
    assert "epsilon: 0.1 here, 1 in what was measured" in both(0.1).outside
    with pytest.raises(UserError, match="nothing was measured with noised"):
        advise(SPLIT, 2, epsilon=1.0, evidence=THREE)


@pytest.mark.parametrize(
    ("wanted", "unsure", "several"),
    [
        ({}, "any", True),
        ({}, "one_model", False),
        ({"one_model": True}, "one_model", True),
        ({"one_model": True}, "any", False),
    ],
)
def test_where_the_table_is_no_judge_the_best_three_are_to_be_tuned(wanted, unsure, several) -> None:
    gains = {"scaffold": 0.3, "fedprox": 0.2, "fedavgm": 0.1, "fednova": 0.05}
    evidence = table(*((skew, gains) for skew in (0.0, 1.0, 2.0)), **{unsure: False})
    best = ("scaffold", "fedprox", "fedavgm")
    assert advise(SPLIT, 2, evidence=evidence, **wanted).choices == (best if several else best[:1])


def test_what_lies_outside_of_all_that_was_measured_is_said() -> None:
    told = advise([[10, 0]] * 50, 2, evidence=THREE).outside
    assert "clients: 50 here, 2 in what was measured" in told
    alone = advise([[10, 0]] * 50, 1, evidence=THREE).outside
    assert any(words.startswith("clients a round: 1 here, ") for words in alone)
    assert not any(words.startswith("clients a round") for words in told)


def test_the_table_that_ships() -> None:
    evidence = shipped()
    assert not {*NAMES} & {*FEATURES}  # columns of one file
    papers = {"fedlecc", "fedentopt", "clust_psi_pfl", "cafa", "fedgwc"}
    assert papers <= {name.partition("(")[0] for name in evidence.gain}
    assert all(str(Method.parse(name)) == name for name in evidence.gain)
    assert {names["data"] for names in evidence.names} >= {"digits", "mnist", "fashion"}
    assert all(np.nanmax(np.abs(gain)) <= 1 for gain in evidence.gain.values())
    assert set(evidence.about["rates"]) == set(evidence.gain)
    assert evidence.about["federations"] == len(evidence)
    text = (files("fedcohort.runs.advice") / "evidence.csv").read_text()
    assert len(text) < 300_000
    assert len(list(csv.reader(text.splitlines()))) == len(evidence) + 1
