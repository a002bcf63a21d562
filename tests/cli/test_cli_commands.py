"""The commands do what their help says: results on stdout, everything else on stderr, nothing overwritten."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import fedcohort
from fedcohort.core.method import METHODS
from fedcohort.core.roles import ROLES
from fedcohort.runs.experiment import Experiment
from support.cli_calls import Cli, contents

TWO = ("--set", "method=['fedavg', 'clust_psi_pfl']")


def runs(text: str) -> list[dict[str, Any]]:
    return json.loads(text)["runs"]


def test_run_prints_a_leaderboard_and_says_where_the_rest_is(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", *TWO)
    assert answer.code == 0
    assert re.search(r"fedavg +\d+\.\d%", answer.out)
    assert re.search(r"clust_psi_pfl +\d+\.\d%", answer.out)
    assert re.search(r"\[2/2\] (fedavg|clust_psi_pfl), seed 0: 2 rounds", answer.err)  # they go on together
    assert "Results: runs/e-001\n" in answer.err


def test_json_is_one_object_and_nothing_else(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", *TWO, "--seeds", "3,4", "--out", "out", "--json")
    assert answer.code == 0
    assert re.search(r"\[4/4\] (fedavg|clust_psi_pfl), seed [34]: 2 rounds", answer.err)
    assert "left in all" in answer.err
    result = json.loads(answer.out)
    assert set(result) == {"verdicts", "runs", "leaderboard"}
    asked = [("fedavg", 3), ("clust_psi_pfl", 3), ("fedavg", 4), ("clust_psi_pfl", 4)]
    assert [(entry["method"], entry["seed"]) for entry in result["runs"]] == asked
    for entry in result["runs"]:
        wanted = {"global.accuracy", "personal.accuracy", "ad", "sdad", "bytes_up", "bytes_down", "groups"}
        assert wanted <= set(entry["metrics"])
        kept = {path.name for path in Path(entry["dir"]).iterdir()}
        told = {"config.toml", "env.json", "about.json", "roster.safetensors", "preparation.json"}
        assert kept == {*told, "table.csv", "state.safetensors", "result.json"}
        assert json.loads((Path(entry["dir"]) / "result.json").read_text()) == entry["metrics"]


def test_leaderboard_is_the_mean_over_seeds_best_first(cli: Cli, here: Path) -> None:
    result = json.loads(cli("run", "e.toml", *TWO, "--seeds", "0,1", "--json").out)
    accuracy: dict[str, list[float]] = {}
    for entry in result["runs"]:
        accuracy.setdefault(entry["method"], []).append(entry["metrics"]["global.accuracy"])
    for standing in result["leaderboard"]:
        a, b = accuracy[standing["method"]]
        assert standing["mean"]["global.accuracy"] == pytest.approx((a + b) / 2)
        assert standing["std"]["global.accuracy"] == pytest.approx(abs(a - b) / 2**0.5)  # of a sample of two
    assert {standing["ranked_by"] for standing in result["leaderboard"]} == {"validation.global.accuracy"}
    order = [standing["mean"]["validation.global.accuracy"] for standing in result["leaderboard"]]
    assert order == sorted(order, reverse=True)


def test_a_target_never_reached_is_null_for_any_number_of_seeds(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", "--set", "evaluate.target=1.0", "--seeds", "0,1", "--json")
    assert [entry["metrics"]["rounds_to_target"] for entry in runs(answer.out)] == [None, None]
    assert json.loads(answer.out)["leaderboard"][0]["std"]["rounds_to_target"] is None


def test_without_test_data_there_is_no_accuracy_but_a_run(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", *TWO, "--set", "split.test=0", "--json")
    assert [entry["metrics"]["global.accuracy"] for entry in runs(answer.out)] == [None, None]
    assert cli("run", "e.toml", *TWO, "--set", "split.test=0").code == 0


def test_nothing_is_overwritten_and_runs_repeat_to_the_byte(cli: Cli, here: Path) -> None:
    first = Path(runs(cli("run", "e.toml", "--json").out)[0]["dir"])
    before = contents(first)
    second = Path(runs(cli("run", "e.toml", "--json").out)[0]["dir"])
    assert contents(first) == before
    assert [first.parent.name, second.parent.name] == ["e-001", "e-002"]
    after = contents(second)
    assert {name for name in before if before[name] != after[name]} <= {"env.json"}


def test_the_kept_config_is_an_experiment_that_gives_the_same_numbers(cli: Cli, here: Path) -> None:
    (first,) = runs(cli("run", "e.toml", "--set", "local.lr=0.3", "--seeds", "5", "--json").out)
    (again,) = runs(cli("run", f"{first['dir']}/config.toml", "--json").out)
    assert again["metrics"] == first["metrics"]
    assert again["seed"] == 5


def test_set_reaches_settings_by_section_position_and_name(cli: Cli, here: Path) -> None:
    changes = ["rounds=1", "local.lr=0.25", "method.0.mu=0.5", "method.fedprox.mu=0.75", "cohort=1.0"]
    (entry,) = runs(cli("run", "e.toml", *(w for c in changes for w in ("--set", c)), "--json").out)
    assert entry["method"] == "fedprox(mu=0.75)"
    assert entry["metrics"]["cohort"] == 6  # a share of 1.0 is everybody; 1 would be one client
    kept = Experiment.read(Path(entry["dir"]) / "config.toml")
    assert (kept.rounds, kept.local.lr, kept.cohort) == (1, 0.25, 1.0)


def test_choices_made_for_the_user_are_announced(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", "--set", "method=['fedavg', 'cafa']")
    assert answer.err.startswith("note: cafa needs validation data: 20% of each client's")


def test_resume_of_what_is_complete_changes_nothing(cli: Cli, here: Path) -> None:
    first = json.loads(cli("run", "e.toml", *TWO, "--seeds", "0,1", "--json").out)
    before = contents(here)
    assert json.loads(cli("run", "--resume", "runs/e-001", "--json").out) == first
    single = cli("run", "--resume", first["runs"][2]["dir"], "--json")
    assert runs(single.out) == first["runs"][2:3]
    assert contents(here) == before


def test_a_name_cannot_lead_out_of_the_output_directory(cli: Cli, here: Path) -> None:
    (entry,) = runs(cli("run", "e.toml", "--set", "name='../../x y'", "--json").out)
    assert Path(entry["dir"]).parent == Path("runs/.._.._x_y-001")


def test_quiet_says_only_the_result(cli: Cli, here: Path) -> None:
    answer = cli("run", "e.toml", "--quiet")
    assert "fedprox" in answer.out
    assert "rounds ..." not in answer.err


def test_demo_compares_fedavg_with_five_papers(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Experiment.read
    monkeypatch.setattr(Experiment, "read", lambda path, changes: read(path, [*changes, "seeds=[0]"]))
    answer = cli("demo", "--rounds", "1", "--json")
    labels, groups, kinds = (
        {run["method"].partition("(")[0] for run in runs(line)} for line in answer.out.splitlines()
    )
    assert labels == {"fedavg", "clust_psi_pfl", "fedlecc", "fedentopt", "cafa"}
    assert groups == {"fedavg", "clust_psi_pfl"}
    assert kinds == {"fedavg", "fedgwc"}
    less = ["seeds=[0]", "method=['fedavg']"]
    monkeypatch.setattr("fedcohort.report.write_report", lambda runs, out, private: out)  # seen above
    monkeypatch.setattr(Experiment, "read", lambda path, changes: read(path, [*changes, *less]))
    said = cli("demo", "--rounds", "1").out
    assert said.count("After 1 round (one seed)") == 3  # on test samples, as papers do
    assert said.count("30 clients share") == 3
    assert "(15 clean, 15 noise)" in said


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"fedcohort {fedcohort.__version__}\n"


def test_help_without_arguments(cli: Cli) -> None:
    for words in ((), ("new",)):
        answer = cli(*words)
        assert "Usage: " in answer.out
        assert answer.err == ""
    assert cli("--help").code == 0


def test_diagnose_counts_samples_and_partitions(cli: Cli, here: Path) -> None:
    """The same federation, given as counts and as samples, gets the same diagnosis."""
    table = {"north": [8, 1, 0], "south": [0, 6, 2], "west": [1, 1, 7]}
    wide = "".join(f"{name},{a},{b},{c}\n" for name, (a, b, c) in table.items())
    (here / "wide.csv").write_text("site,a,b,c\n" + wide)
    long = "".join(f"{name},{'abc'[i]}\n" * n for name, row in table.items() for i, n in enumerate(row))
    (here / "long.csv").write_text("site,label\n" + long)
    counts = cli("diagnose", "wide.csv", "--client", "site", "--json")
    samples = cli("diagnose", "long.csv", "--client", "site", "--label", "label", "--json")
    assert counts.code == samples.code == 0
    assert counts.err == samples.err == ""
    assert json.loads(counts.out) == json.loads(samples.out)
    assert "north" in counts.out
    assert "north" in cli("diagnose", "wide.csv", "--client", "site", "--all").out


def test_diagnose_tries_as_many_groups_as_it_is_told(cli: Cli, here: Path) -> None:
    few, more = (
        json.loads(cli("diagnose", "e.toml", "--max-groups", most, "--json").out)["silhouettes"]["cafa"][
            "groups"
        ]
        for most in ("2", "5")
    )
    assert (few, more) == ([2], [2, 3, 4, 5])


def test_diagnose_deals_what_run_would_train_on(cli: Cli, here: Path) -> None:
    (here / "all.toml").write_text((here / "e.toml").read_text() + '\n[evaluate]\non = "test"\n')
    experiment = json.loads(cli("diagnose", "all.toml", "--seed", "3", "--json").out)
    source = "synthetic(samples=120, classes=3, features=4)"
    protocol = "dirichlet(clients=6, alpha=0.5, min_size=4)"
    by_name = cli("diagnose", source, "--partition", protocol, "--seed", "3", "--json")
    assert json.loads(by_name.out) == experiment
    assert json.loads(cli("diagnose", "all.toml", "--json").out) != experiment
    assert json.loads(cli("diagnose", "e.toml", "--seed", "3", "--json").out) != experiment  # some held out


def test_methods_lists_every_method_once(cli: Cli) -> None:
    listed = json.loads(cli("methods", "--json").out)
    assert [entry["name"] for entry in listed] == METHODS.names()
    assert all(entry["title"] and entry["paper"] and entry["roles"] and entry["sends"] for entry in listed)
    text = cli("methods").out
    assert all(name in text for name in METHODS.names())


@pytest.mark.parametrize("name", METHODS.names())
def test_methods_has_a_page_for_each(name: str, cli: Cli) -> None:
    entry = json.loads(cli("methods", name, "--json").out)
    page = cli("methods", name).out
    assert page.startswith(f"{name}  (")
    assert all(parameter["name"] in page for parameter in entry["parameters"])


def test_methods_explains_a_combination(cli: Cli) -> None:
    entry = json.loads(cli("methods", "fedlecc+fedprox(mu=0.5)+clip", "--json").out)
    roles = {part["name"]: part["roles"] for part in entry["parts"]}
    assert roles == {
        "fedlecc": ["selector"],
        "fedprox": ["objective"],
        "fedavg": ["averaging"],
        "server_sgd": ["server_optimiser"],
        "one": ["grouping"],
        "unchanged": ["adaptation"],
        "clip": ["transform"],
    }
    assert entry["parts"][1]["settings"] == {"mu": 0.5}
    assert set(entry["needs"]) == {"counts", "losses"}
    assert [leaf["message"] for leaf in entry["leaves"]] == ["profile", "poll", "training", "evaluation"]
    page = cli("methods", "fedlecc+fedprox(mu=0.5)+clip").out
    assert page.startswith("fedlecc+fedprox(mu=0.5)+clip")
    assert all(part["name"] in page for part in entry["parts"])
    assert "mu=0.5" in page
    wrong = cli("methods", "fedavg+fairavg")
    assert (wrong.code, wrong.out) == (2, "")
    assert "fedavg and fairavg cannot be combined" in wrong.err


@pytest.mark.parametrize("role", ROLES)
def test_a_new_method_runs_at_once(role: str, cli: Cli, here: Path, elsewhere: Path) -> None:
    name = f"my_{role}"
    answer = cli("new", "method", name, "--role", role)
    assert answer.code == 0
    assert (here / f"{name}.py").exists()
    own = "--set", f"imports=['{name}']", "--set", f"method=['{name}']"
    result = cli("run", "e.toml", *own, "--json", "--quiet")
    assert result.err == ""
    assert runs(result.out)[0]["method"] == (f"fedavg+{name}" if role == "adaptation" else name)


def test_how_a_table_was_read_is_told_and_kept(cli: Cli, here: Path) -> None:
    rows = "".join(f"{'' if row == 3 else row},{'yes' if row % 3 else 'no'},{row % 2}\n" for row in range(40))
    (here / "patients.csv").write_text("age,smoker,ill\n" + rows)
    data = "data={source='table', path='patients.csv', label='ill', missing='mean'}"
    answer = cli("run", "e.toml", "--set", data, "--set", "rounds=1", "--out", "out")
    read = (
        "columns of the table: 1 of numbers, 1 of categories; "
        "1 of 40 numbers are missing and filled with the mean, most in 'age' (2%)"
    )
    assert f"note: {read}" in " ".join(answer.err.split())
    facts = json.loads(next(here.glob("out/*/*/env.json")).read_text())
    assert facts["read"] == read
