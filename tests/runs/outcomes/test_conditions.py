"""In which settings runs differ, and what that means for who is ranked with whom."""

from pathlib import Path

import pytest

from fedcohort.runs.outcomes.conditions import combinations, in_words, place, planned_runs, settings, swept
from fedcohort.runs.outcomes.standings import Outcome, rankings
from fedcohort.util.errors import UserError
from support.result_dirs import asked


def test_settings_are_flat_and_those_of_a_method_complete() -> None:
    told = settings(asked("fedprox+clip(2.0)", data={"source": "table", "columns": ["a", "b"]}))
    assert told["partition.alpha"] == 0.1
    assert told["data.columns"] == '["a", "b"]'
    assert told["method.fedprox.mu"] == 0.01  # the default, which the text does not say
    assert told["method.clip.norm"] == 2.0
    assert settings(asked("mine(1.5, b=2)"))["method.mine.b"] == 2  # nobody's code is asked


def test_what_names_and_measures_a_run_is_no_condition() -> None:
    runs = [asked("fedavg", 0), asked("fedavg", 1, name="f", evaluate={"every": 2}, imports=["m"])]
    assert [run.settings for run in place(runs)] == [{}, {}]
    everybody = place([asked("fedavg"), asked("fedavg", cohort=2.0)])
    assert [run.settings for run in everybody] == [{"cohort": 2}, {"cohort": 2.0}]
    assert len(combinations([run.settings for run in everybody])) == 2  # two clients and twice everybody


def test_a_method_may_have_its_own_learning_rate_but_not_its_own_data() -> None:
    tuned = place([asked("fedavg"), asked("fedprox", local__lr=0.5)])
    assert [run.settings for run in tuned] == [{}, {}]
    other = place([asked("fedavg"), asked("fedprox", partition__alpha=0.5)])
    assert [run.settings for run in other] == [{"partition.alpha": 0.1}, {"partition.alpha": 0.5}]
    by_data = [asked("fedavg"), asked("fedavg", partition__alpha=0.5, local__lr=0.5)]
    assert [list(run.settings) for run in place(by_data)] == [["partition.alpha"]] * 2  # tuned for each
    swept = place([asked("fedavg"), asked("fedavg", local__lr=0.5)])
    assert [run.settings for run in swept] == [{"local.lr": 0.1}, {"local.lr": 0.5}]


def test_parameters_are_conditions_of_one_method_and_else_make_two() -> None:
    runs = [asked("fedavg"), asked("fedprox"), asked("fedprox(mu=0.5)")]
    assert [run.method for run in place(runs)] == ["fedavg", "fedprox", "fedprox(mu=0.5)"]
    mu = "method.fedprox.mu"
    expected = [("fedavg", {}), ("fedprox", {mu: 0.01}), ("fedprox", {mu: 0.5})]
    assert place(runs, [mu]) == expected
    labelled = [asked("fedavg"), *(asked(text, label="fedprox") for text in ("fedprox", "fedprox(mu=0.5)"))]
    assert place(labelled) == expected


def test_no_ranking_mixes_two_values_and_who_lacks_a_parameter_is_in_each() -> None:
    mu = "method.fedprox.mu"
    runs = [
        ("fedavg", {"a": 0.5}, 0.3),
        ("fedprox", {"a": 0.5, mu: 1}, 0.4),
        ("fedprox", {"a": 0.5, mu: 2}, 0.2),
    ]
    runs += [("fedavg", {"a": 0.1}, 0.9)]  # where fedprox was not run
    outcomes = [
        Outcome(name, 0, Path(), {"global.accuracy": value}, settings=told) for name, told, value in runs
    ]
    found = [(each[0].settings, [standing.method for standing in each]) for each in rankings(outcomes)]
    assert found == [
        ({"a": 0.1}, ["fedavg"]),
        ({"a": 0.5, mu: 1}, ["fedprox", "fedavg"]),
        ({"a": 0.5, mu: 2}, ["fedavg", "fedprox"]),
    ]
    assert rankings(outcomes)[1][0].to_dict()["settings"] == {"a": 0.5, mu: 1}


def test_conditions_in_words_and_in_order() -> None:
    each = [{"n": value} for value in ("x", 10, 9, None)]
    assert [in_words(told) for told in combinations(each)] == ["n = 9", "n = 10", "n = x", "n = –"]
    assert in_words({"partition.name": "iid", "partition.alpha": None}) == "partition.name = iid"


def test_settings_beyond_all_measure_are_refused() -> None:
    deep: dict = {}
    for _ in range(2000):
        deep = {"a": deep}
    with pytest.raises(UserError, match="too deep"):
        settings(asked("fedavg", local=deep))
    with pytest.raises(UserError, match="more than 1,000 settings"):
        settings(asked("fedavg", local={str(number): 1 for number in range(1001)}))
    assert settings(asked("fedavg", local={"lr": 10**400}))["local.lr"] == str(10**400)


def test_what_a_file_sweeps_is_a_condition_also_where_labels_tell_it(tmp_path: Path) -> None:
    """FedProx is run for each alpha and mu; FedAvg, which has no mu, for each alpha."""
    (tmp_path / "experiment.toml").write_text(
        'seeds = [0, 1, 2]\nmethod = ["fedavg", "fedprox"]\n'
        '[sweep]\n"partition.alpha" = [0.1, 0.5]\n"method.fedprox.mu" = [0.1, 1.0]\n'
    )
    assert planned_runs(tmp_path) == 3 * (2 + 4)
    runs = [asked(f"fedlecc+fedprox(mu={mu})", label=f"both (mu={mu})") for mu in (0.1, 1.0)]
    told = place(runs, swept(tmp_path))
    assert [(run.method, run.settings) for run in told] == [
        ("both", {"method.fedprox.mu": 0.1}),
        ("both", {"method.fedprox.mu": 1.0}),
    ]
    (tmp_path / "experiment.toml").write_text(
        'seeds = [0]\nmethod = ["fedavg", "fedprox"]\n[sweep]\nzip = true\n'
        '"rounds" = [1, 1, 2]\n"method.fedprox.mu" = [0.1, 0.2, 0.3]\n'
    )
    assert planned_runs(tmp_path) == 2 + 3
    (tmp_path / "experiment.toml").write_text("seeds = [0]\nmethod = ['fedavg']\n[sweep]\nrounds = '[x'\n")
    with pytest.raises(UserError, match="not a list of values"):
        swept(tmp_path)
