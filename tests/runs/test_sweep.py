"""One comparison under several settings, and more of it later: nothing is computed twice, and what was
lengthened is what it would have been from the start."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedcohort.cli.progress import Silent
from fedcohort.runs import experiment as experiment_module
from fedcohort.runs.comparison import Plan, carry_out, compare, extend, prepare, reopen
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import Outcome, with_conditions
from fedcohort.runs.stored import RunSettings
from fedcohort.runs.sweep import Sweep
from fedcohort.util.errors import UserError

TABLE: dict[str, Any] = {
    "method": ["fedavg", "fedprox"],
    "rounds": 3,
    "cohort": 2,
    "data": {"source": "synthetic", "samples": 120, "classes": 3, "features": 4},
    "partition": {"name": "dirichlet", "clients": 4, "alpha": 0.5, "min_size": 6},
    "model": "logistic",
    "local": {"batch": 8},
    "evaluate": {"every": 2, "adapted": True, "last": 2, "smooth": 0.5, "target": 0.4},
}


def asked(**changes: Any) -> Experiment:
    return Experiment.of({**TABLE, **changes})


def files(directory: Path, *names: str) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in names}


def values(experiment: Experiment) -> list[tuple[Any, ...]]:
    """What differs between the variants, and their methods."""
    return [
        (each.partition.alpha, each.local.lr, *map(str, each.methods))  # type: ignore[attr-defined]
        for _, each in experiment.variants()
    ]


class Trained(Silent):
    """Writes down which rounds were trained."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.rounds = 0

    def begin(self, method: str, seed: int, rounds: int) -> Any:
        self.titles.append(method)
        callback = super().begin(method, seed, rounds)
        told = callback.after_round

        def after_round(*about: Any) -> bool:
            self.rounds += 1
            return told(*about)

        callback.after_round = after_round  # type: ignore[method-assign]
        return callback


def test_all_combinations_or_pairs() -> None:
    lists = {"partition.alpha": [0.1, 0.5], "local": {"lr": [0.01, 0.1]}}  # as text, and bare
    plain = "fedavg", "fedprox"
    grid = [(alpha, lr, *plain) for alpha in (0.1, 0.5) for lr in (0.01, 0.1)]
    assert values(asked(sweep=lists)) == grid
    assert values(asked(sweep={**lists, "zip": True})) == [(0.1, 0.01, *plain), (0.5, 0.1, *plain)]


def test_pairs_stay_pairs_whatever_is_added() -> None:
    """The command adds its --sweep to the file's, also if there is none."""
    pairs = asked(sweep={"partition.alpha": [0.1, 0.5], "local.lr": [0.01, 0.1], "zip": True})
    assert len(values(pairs.swept([]))) == 2
    with pytest.raises(UserError, match="adds values to a grid; this comparison pairs them"):
        pairs.swept(["local.lr=0.5"])


def test_whole_partitions_are_swept_as_texts(tmp_path: Path) -> None:
    """Which results tell apart by their names, and by what two of a name differ in."""
    told = Sweep.parse(["partition=iid(clients=4),dirichlet(clients=4, alpha=0.5, min_size=6)"])
    deals = dict(told.values)["partition"]
    assert deals == ("iid(clients=4)", "dirichlet(clients=4, alpha=0.5, min_size=6)")
    home, outcomes = compare(asked(method="fedavg", sweep={"partition": list(deals)}), tmp_path, Silent())
    assert [outcome.settings for outcome in with_conditions(home, outcomes)] == [
        {"partition.name": "iid"},
        {"partition.name": "dirichlet"},
    ]
    more = [*deals, "dirichlet(clients=4, alpha=5.0, min_size=6)"]
    plan = extend(reopen(home), asked(method="fedavg", sweep={"partition": more}))
    found = with_conditions(home, carry_out(plan, Silent()))
    assert [outcome.settings.get("partition.alpha") for outcome in found] == [None, 0.5, 5.0]
    assert {tuple(outcome.settings) for outcome in found} == {("partition.name", "partition.alpha")}


def test_a_federation_is_made_once_whatever_is_swept_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    usual = experiment_module.federate
    monkeypatch.setattr(experiment_module, "federate", lambda *about: made.append(about[1]) or usual(*about))
    alphas = [0.3 + 0.1 * number for number in range(9)]  # more than are kept at a time
    prepare(asked(sweep={"local.lr": [0.1, 0.2], "partition.alpha": alphas}, seeds=[77]), tmp_path)
    assert len(made) == 9


def test_a_setting_of_a_part_is_every_method_s_that_has_it() -> None:
    methods = ["fedavg", "fedlecc+fedprox", {"name": "fedprox", "label": "ours"}]
    variants = [each for _, each in asked(method=methods, sweep={"method.fedprox.mu": [0.5, 1]}).variants()]
    assert [list(map(str, each.methods)) for each in variants] == [
        ["fedavg", f"fedlecc+fedprox(mu={mu})", f"fedprox(mu={mu})"] for mu in (0.5, 1.0)
    ]
    assert [each.methods[2].title for each in variants] == ["ours (mu=0.5)", "ours (mu=1)"]


def test_what_does_not_depend_on_a_value_runs_once(tmp_path: Path) -> None:
    experiment = asked(sweep={"method.fedprox.mu": [0.1, 1.0], "local.lr": [0.05, 0.2]})
    watcher = Trained()
    home, outcomes = compare(experiment, tmp_path, watcher)
    assert len(outcomes) == 2 + 4 == len([path for path in home.iterdir() if path.is_dir()])
    told = {(outcome.method, outcome.condition) for outcome in outcomes}
    assert ("fedavg", "local.lr=0.05") in told
    assert ("fedprox(mu=1.0)", "local.lr=0.2") in told
    assert len(set(watcher.titles)) == 6


def home_of(experiment: Experiment, out: Path) -> tuple[Plan, list[Outcome]]:
    plan = prepare(experiment, out)
    return plan, carry_out(plan, Silent())


def test_more_seeds_methods_and_values_repeat_nothing(tmp_path: Path) -> None:
    plan, _ = home_of(asked(sweep={"local.lr": [0.1]}), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in plan.home.glob("*/table.csv")}
    more = asked(seeds=[0, 1], method=["fedavg", "fedprox", "fedavgm"], sweep={"local.lr": [0.1, 0.2]})
    watcher = Trained()
    longer = extend(reopen(plan.home), more)
    assert len(carry_out(longer, watcher)) == 12
    assert watcher.rounds == (12 - 2) * 3
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert reopen(plan.home).open == 0
    with pytest.raises(UserError, match=r"seed 1, is missing here\): ask for that, too, or start"):
        extend(reopen(plan.home), replace(more, seeds=(0,)))


def test_a_setting_that_was_not_swept_keeps_its_value_too() -> None:
    swept = asked().swept(["local.lr=0.3,0.4", "method.fedprox.mu=1"], also_as_it_is=True)
    assert dict(swept.sweep.values) == {"local.lr": (0.05, 0.3, 0.4), "method.fedprox.mu": (0.01, 1)}
    again = swept.swept(["local.lr=0.4,0.5"], also_as_it_is=True)
    assert dict(again.sweep.values)["local.lr"] == (0.05, 0.3, 0.4, 0.5)
    with pytest.raises(UserError, match=r"local\.steps: the runs that are there do not say what it is"):
        asked().swept(["local.steps=3"], also_as_it_is=True)
    with pytest.raises(UserError, match=r"local\.stps: unknown, did you mean 'steps'"):
        asked().swept(["local.stps=3"], also_as_it_is=True)


def test_one_client_and_everybody_are_two_cohorts() -> None:
    both = asked(sweep={"cohort": [1, 1.0]})
    assert [each.cohort for _, each in both.variants()] == [1, 1.0]
    assert dict(both.swept(["local.lr=1"]).swept(["local.lr=1.0"]).sweep.values)["local.lr"] == (1,)


def test_what_is_swept_is_not_set_as_well(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(tomli_w.dumps({**TABLE, "sweep": {"local.lr": [0.1, 0.2]}}))
    with pytest.raises(UserError, match=r"--set local\.lr: every run has a value of the list that sweeps it"):
        Experiment.read(path, ["local.lr=0.3"])
    assert Experiment.read(path, ["local.batch=4"]).local.batch == 4


def test_conditions_of_papers_fill_in_what_the_file_leaves_open(tmp_path: Path) -> None:
    """Each of them anew; what the file says itself holds under all of them, also after a restart."""
    table = {
        "method": ["fedlecc/fedavg"],
        "rounds": 2,
        "seeds": [0],
        "data": {"source": "digits"},
        "partition": {"clients": 5},
        "sweep": {"conditions": ["fedlecc/fmnist", "fedlecc/mnist-250", "clust-psi-pfl/fmnist/S=0"]},
    }
    asked = Experiment.of({**table, "model": "logistic"})
    told = [(each.partition.name, each.partition.clients, each.local.lr) for _, each in asked.variants()]
    dirichlet, similar = ("dirichlet_fedartml", 5, 0.005), ("similarity", 5, 0.001)
    assert told == [dirichlet, dirichlet, similar]
    assert [note for note in asked.notes if "alpha is not stated" in note] != []
    plan, outcomes = home_of(asked, tmp_path)
    assert [outcome.condition for outcome in outcomes] == [
        f"conditions={name}" for name in table["sweep"]["conditions"]
    ]
    again = reopen(plan.home)
    assert [job.table for job in again.jobs] == [job.table for job in plan.jobs]
    assert again.open == 0
    assert "conditions" not in (outcomes[0].directory / "config.toml").read_text()
    with pytest.raises(UserError, match="they are swept"):
        Experiment.of({**table, "conditions": "fedlecc/mnist"})
    with pytest.raises(UserError, match=r"sweep.conditions: \(1,\) is not a list of texts"):
        Experiment.of({**table, "sweep": {"conditions": [1]}})
    with pytest.raises(UserError, match="unknown conditions"):
        Experiment.of({**table, "sweep": {"conditions": ["fedlecc/mnst"]}})


@pytest.mark.parametrize("method", ["fedavg", "scaffold+fedgwc(tolerance=10.0, min_group=2)"])
@pytest.mark.parametrize("first", [2, 3])  # evaluated as it would be anyway, or only because it is the last
def test_a_longer_run_is_what_it_would_have_been(method: str, first: int, tmp_path: Path) -> None:
    """After its first end, table, result and state of a lengthened run are those of one that never ended."""
    kept = "table.csv", "result.json", "state.safetensors", "config.toml"
    (whole,) = home_of(asked(method=[method], rounds=5), tmp_path / "whole")[1]
    plan, (short,) = home_of(asked(method=[method], rounds=first), tmp_path / "longer")
    watcher = Trained()
    (longer,) = carry_out(extend(reopen(plan.home), asked(method=[method], rounds=5)), watcher)
    assert watcher.rounds == 5 - first
    assert files(longer.directory, *kept) == files(whole.directory, *kept)
    assert longer.metrics == whole.metrics
    assert longer.directory.name == whole.directory.name
    assert not short.directory.exists()


@pytest.mark.parametrize("stopped", ["result", "config"])
def test_a_directory_that_was_left_half_adopted_is_adopted(stopped: str, tmp_path: Path) -> None:
    """Its result is removed, then its settings are written, then it moves: killed before either."""
    plan, (short,) = home_of(asked(method=["fedavg"]), tmp_path)
    longer = asked(method=["fedavg"], rounds=5)
    extended = extend(reopen(plan.home), longer)
    (job,) = extended.jobs
    job.directory.rename(short.directory)
    if stopped == "result":
        was = asked(method=["fedavg"]).table(job.method, 0)
        (short.directory / "config.toml").write_text(tomli_w.dumps(was))
    (outcome,) = carry_out(reopen(plan.home), Silent())
    assert outcome.directory == job.directory
    assert outcome.metrics == home_of(longer, tmp_path / "whole")[1][0].metrics


def test_fewer_rounds_are_refused(tmp_path: Path) -> None:
    plan, _ = home_of(asked(), tmp_path)
    with pytest.raises(UserError, match="rounds is 2 here and 3 there"):
        extend(reopen(plan.home), asked(rounds=2))
    assert reopen(plan.home).open == 0


def test_the_setting_that_was_changed_is_named_and_no_swept_one(tmp_path: Path) -> None:
    sweep = {"partition.alpha": [0.3, 0.5]}
    plan, _ = home_of(asked(sweep=sweep), tmp_path)
    for directory in plan.home.glob("*/"):
        if RunSettings.read(directory).table["partition"]["alpha"] == 0.3:
            shutil.rmtree(directory)
    with pytest.raises(UserError, match=r"what is asked for now leaves out .*\(local.batch is 4 here and 8"):
        extend(reopen(plan.home), asked(sweep=sweep, local={"batch": 4}))


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"locl.lr": [1]}, "locl: unknown, did you mean 'local'"),
        ({"lr": [1]}, "lr: unknown, did you mean 'local.lr'"),
        ({"alpha": [1]}, "alpha: unknown, did you mean 'partition.alpha'"),
        ({"local.lr": [1], "local": {"lr": [2]}}, "local.lr is listed twice, list it once"),
        ({"local.lrr": [0.1]}, "local.lrr: unknown, did you mean 'lr'"),
        ({"local.lr": []}, "the list of local.lr is empty, give at least one value"),
        ({"local.lr": 0.1}, r"local.lr = 0.1 is not a list: write local.lr = \[0.1\]"),
        ({"local.lr": [0.1, 0.1]}, "local.lr has 0.1 twice, list it once"),
        ({"local.lr": ["fast"]}, "local.lr: 'fast' is not a number"),
        ({"seeds": [1]}, "'seeds' is not swept: list several seeds under 'seeds'"),
        ({"method.fedprx.mu": [1]}, "no method here has a part 'fedprx', did you mean 'fedprox'"),
        ({"method.fedprox": [1]}, "names no setting: write it like method.fedprox.mu"),
        ({"method.fedprox.nu": [1]}, "method.fedprox.nu: unknown; known: mu"),
        ({"zip": True, "local.lr": [0.1], "rounds": [1, 2]}, "local.lr has 1, rounds has 2"),
        ({"zip": 3}, "sweep.zip: 3 is not true or false"),
        ({"imports.0": ["evil"]}, "'imports.0' is not swept"),
        ({"track": {"mlflow": {"uri": ["sqlite:///x"]}}}, "'track.mlflow.uri' is not swept"),
        ({f"model.a{n}": list(range(10)) for n in range(99)}, "more than 1,000,000 combinations"),
        ({"local.lr": list(range(10**6))}, "local.lr has 1,000,000 values, give at most"),
    ],
)
def test_mistakes_are_named(sweep: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        list(asked(sweep=sweep, imports=["json"]).variants())


def test_very_many_runs_are_refused_before_they_are_listed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="1,200,000 runs, and a comparison has at most 1,000,000"):
        prepare(asked(seeds=list(range(600_000))), tmp_path)
    with pytest.raises(UserError, match="seeds: 7 is listed twice"):
        asked(seeds=[*range(10**5), 7])


def test_written_on_the_command_line() -> None:
    sweep = Sweep.parse(
        ["local.lr=0.01,0.1", "model.widths=[[64], [32, 32]]", "partition.name=iid, dirichlet"]
    )
    expected = ((0.01, 0.1), ([64], [32, 32]), ("iid", "dirichlet"))
    assert tuple(several for _, several in sweep.values) == expected
    assert Sweep.parse(["local.lr=0.1, fast"]).values == (("local.lr", (0.1, "fast")),)  # one mistake
    with pytest.raises(UserError, match=r"write it like --sweep local\.lr=0\.01,0\.1"):
        Sweep.parse(["local.lr"])
