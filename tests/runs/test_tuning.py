"""Tuning: as many trials for every method, on rows that are neither trained on nor tested on, given up early,
and stopped and continued without a trace."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from fedcohort.cli.app import main
from fedcohort.cli.progress import Silent
from fedcohort.core.method import Method
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.search import LR, Grid, Optuna, Search, space_of, value_at
from fedcohort.runs.stored import RunSettings, read_table, runs_of
from fedcohort.runs.tuning import Trial, Tuning
from fedcohort.runs.tuning_files import reopen
from fedcohort.util.errors import UserError
from fedcohort.util.settings import tune

TABLE: dict[str, Any] = {
    "method": ["fedavg", {"name": "fedprox", "label": "pulled"}],
    "rounds": 9,
    "cohort": 3,
    "data": {"source": "synthetic", "samples": 200, "classes": 3, "features": 4},
    "partition": {"name": "dirichlet", "clients": 5, "alpha": 0.5, "min_size": 12},
    "model": "logistic",
    "local": {"batch": 8, "lr": 0.0011},
}


def tuning(home: Path, kind: type[Search] = Search, trials: int | None = 9, **changes: Any) -> Tuning:
    experiment = Experiment.of({**TABLE, **changes})
    home.mkdir(exist_ok=True)
    searches = [kind(space_of(method), 0, trials or 0) for method in experiment.methods]
    return Tuning(experiment, home, searches, trials)


def of(trials: list[Trial], method: int) -> list[Trial]:
    return [trial for trial in trials if trial.method == method]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuning, list[Trial]]:
    search = tuning(tmp_path_factory.mktemp("tuning"))
    return search, search.run(Silent())


def test_the_best_third_goes_on(done: tuple[Tuning, list[Trial]]) -> None:
    search, trials = done
    assert search.rungs == [3, 9]
    for method in (0, 1):
        own = of(trials, method)
        assert [trial.number for trial in own] == list(range(9))
        assert sum(trial.rounds == 9 for trial in own) == 3
        worst = min(trial.scores[3] for trial in own if trial.rounds == 9)
        assert worst >= max(trial.scores[3] for trial in own if trial.rounds == 3)
    asked = [RunSettings.read(directory).rounds for directory in runs_of(search.home)]
    assert sorted(asked) == [3] * 12 + [9] * 6


def test_trials_are_compared_when_they_are_evaluated(tmp_path: Path) -> None:
    for rounds, every, rungs in ((1, 1, [1]), (2, 1, [1, 2]), (30, 2, [10, 30]), (100, 8, [32, 100])):
        search = tuning(tmp_path, rounds=rounds)
        assert (search.every, search.rungs) == (every, rungs)


def test_the_second_half_of_the_rounds_counts(done: tuple[Tuning, list[Trial]]) -> None:
    search, trials = done
    best = search.best(trials)[0]
    (directory,) = [path for path in runs_of(search.home) if is_of(RunSettings.read(path), best)]
    curve = {
        row.round: row.value for row in read_table(directory / "table.csv") if row.key == "global.accuracy"
    }
    assert best.score == pytest.approx(sum(curve[number] for number in (5, 6, 7, 8, 9)) / 5)
    assert best.scores[3] == pytest.approx((curve[2] + curve[3]) / 2)


def is_of(asked: RunSettings, trial: Trial) -> bool:
    return (
        "fedprox" not in asked.method and asked.rounds == 9 and asked.table["local"]["lr"] == trial.point[LR]
    )


def test_methods_try_the_same_learning_rates(done: tuple[Tuning, list[Trial]]) -> None:
    _, trials = done
    rates = [[trial.point.get(LR) for trial in of(trials, method)] for method in (0, 1)]
    assert rates[0] == rates[1]
    assert rates[0][0] is None  # as in the file
    assert len({*rates[0]}) == 9


def test_stopped_and_continued_comes_to_the_same(done: tuple[Tuning, list[Trial]], tmp_path: Path) -> None:
    search, trials = done

    class StopAt(Silent):
        left = 20  # among the trials that go on

        def begin(self, *about: Any) -> Any:
            StopAt.left -= 1
            if StopAt.left == 0:
                raise KeyboardInterrupt
            return super().begin(*about)

    again = tuning(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        again.run(StopAt())
    assert any(RunSettings.read(directory).rounds > 3 for directory in runs_of(tmp_path))
    assert again.run(Silent()) == trials
    assert {path.name for path in runs_of(tmp_path)} == {path.name for path in runs_of(search.home)}


def test_the_best_values_make_an_experiment(done: tuple[Tuning, list[Trial]], tmp_path: Path) -> None:
    """Whose runs have them, each method its own learning rate; names stay."""
    search, trials = done
    tuned = Experiment.of(search.tuned(trials).table())
    assert [method.title for method in tuned.methods] == ["fedavg", "pulled"]
    for trial, method in zip(search.best(trials), tuned.methods, strict=True):
        assert trial.rounds == 9
        alone = tuned.of_one(method)
        assert alone.local.lr == trial.point[LR] != tuned.local.lr
        assert alone.split.tuning == 0
    assert f"mu={search.best(trials)[1].point['method.fedprox.mu']}" in str(tuned.methods[1])


@pytest.mark.parametrize("mode", ["pool", "mirror"])
def test_what_is_held_out_is_neither_trained_on_nor_tested_on(mode: Any) -> None:
    data = load("synthetic", samples=400, classes=3, features=4)
    if mode == "mirror":
        test = {"test_x": data.x[:90], "test_y": data.y[:90]}
        data = type(data)(**{**vars(data), "x": data.x[90:], "y": data.y[90:], **test})
    deal = partitioner("iid", clients=4)
    usual, tuned = (federate(data, deal, SplitPlan(mode, validation=0.1, tuning=share)) for share in (0, 0.2))

    def rows(split: Any) -> set[tuple[float, ...]]:
        return {tuple(row) for client in range(4) for row in split.x[split.rows(client)].tolist()}

    held, trained, tested = rows(tuned.test), rows(tuned.train) | rows(tuned.validation), rows(usual.test)
    assert len(held) == pytest.approx(0.2 * len(held | trained), abs=4)
    assert not held & trained
    assert not held & tested
    assert not trained & tested
    assert held | trained == rows(usual.train) | rows(usual.validation)


def test_where_values_lie() -> None:
    assert [value_at(tune(1e-3, 1), False, share) for share in (0, 1 / 3, 1)] == [0.001, 0.01, 1]
    assert [value_at(tune(0, 2), False, share) for share in (0, 0.25, 1)] == [0, 0.5, 2]
    assert [value_at(tune(2, 8), True, share) for share in (0, 0.5, 1)] == [2, 5, 8]


def test_a_grid_has_every_combination_once() -> None:
    space = space_of(Method.parse("fedprox"))
    grid = Grid(space, 0, 8)
    points = [grid.ask(number) for number in range(10)]
    assert points[0] == {}
    assert points[9] is None
    corners = {(0.001, 1.0), (0.0001, 1.0), (0.1, 3.0)}
    assert {tuple(sorted({point[key] for point in points[1:9]})) for key in space} == corners  # type: ignore[index]
    assert len({tuple(point.items()) for point in points[1:9]}) == 8  # type: ignore[union-attr]


def test_optuna_proposes_and_comes_to_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="the extra 'tune' is not installed")
    first, second = (tuning(tmp_path, Optuna, 12, method=["fedavg"], rounds=3).run(Silent()) for _ in "ab")
    assert first == second
    assert len({trial.point[LR] for trial in first[1:]}) == 11


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "0"], "every method needs a trial, so give at least 2"),
        (["--budget", "0", "--per-method"], "every method needs a trial, so give at least 1"),
        (["--budget", "4", "--time", "3m"], "--budget and --time exclude each other"),
        (["--time", "soon"], "write a time like 90s, 30m or 2h"),
        (["--set", 'sweep={"local.lr"=[1]}'], "tuning looks for the best values itself"),
    ],
)
def test_mistakes_are_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('method = ["fedavg", "fedprox"]\n[data]\nsource = "synthetic"\n')
    with pytest.raises(SystemExit) as ended:
        main(["tune", str(path), "--out", str(tmp_path / "out"), *words])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("[tune]\n", "tune.sampler|sampler is missing"),
        ('[tune]\nsampler = "random"\n', "neither how many trials nor for how long"),
        ('[tune]\nsampler = "random"\nseconds = inf\n', "seconds"),
        ('[tune]\nsampler = "random"\ntrials = 9999999\n', "trials"),
        ("[tune.tune]\n", "sampler"),
        ('tune = 3\n', "tune"),
        ('imports = ["evil"]\n', "would import 'evil'.*add --trust"),
        ('model = "subprocess:run"\n', "would call 'subprocess:run'.*add --trust"),
        ('track = {wandb = {}}\n', "would send results to 'wandb'.*add --trust"),
    ],
)  # fmt: skip
def test_a_directory_of_somebody_else(
    change: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that it names is executed, and it ends."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('canary').touch()\n")
    tune = "" if "tune" in change else '[tune]\nsampler = "random"\ntrials = 1\n'
    (tmp_path / "tune.toml").write_text(f'method = ["fedavg"]\n{change}{tune}')
    with pytest.raises(UserError, match=sentence):
        reopen(tmp_path)
    assert not (tmp_path / "canary").exists()


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tuned, tuned again from its directory, and the best values run."""
    path = tmp_path / "small.toml"
    path.write_text(
        'method = ["fedavg"]\nrounds = 2\ncohort = 2\nmodel = "logistic"\n'
        '[data]\nsource = "synthetic"\nsamples = 120\n[partition]\nname = "iid"\nclients = 3\n'
    )
    told = []
    for words in (
        [str(path), "--budget", "3", "--out", str(tmp_path)],
        ["--resume", str(tmp_path / "small-tune-001")],
    ):
        with pytest.raises(SystemExit) as ended:
            main(["tune", *words, "--json", "--quiet"])
        assert ended.value.code in (0, None)
        told.append(json.loads(capsys.readouterr().out))
    assert told[0] == told[1]
    (method,) = told[0]["methods"]
    assert (method["method"], method["trials"], method["rounds"]) == ("fedavg", 3, 2)
    best = tomllib.loads(Path(told[0]["best"]).read_text())
    assert best["method"][0].get("local", {}).get("lr") == method["settings"].get(LR)
    assert "fedavg: the clients" in Path(told[0]["report"]).read_text()
