"""Tuning: as many trials for every method, on rows that are neither trained on nor tested on, given up early,
and stopped and continued without a trace."""

import json
import math
import tomllib
from math import prod
from pathlib import Path
from typing import Any

import pytest

from fedcohort.cli.app import main
from fedcohort.cli.progress import Silent
from fedcohort.core.evaluate import Row
from fedcohort.core.method import Method
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.stored import RunSettings, read_table, runs_of
from fedcohort.runs.tuning.files import begin, reopen
from fedcohort.runs.tuning.halving import AT_A_TIME, Halving, Trial, late_score
from fedcohort.runs.tuning.search import LR, Grid, Optuna, Search, space_of, value_at
from fedcohort.runs.tuning.tuning import Tuning, _AndLater, without_tuned
from fedcohort.util.budget import EACH, MOST
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
    searches = [kind(space_of(method), 0, trials) for method in experiment.methods]
    return Tuning(experiment, home, Halving(searches, experiment.rounds, trials))


def of(trials: list[Trial], method: int) -> list[Trial]:
    return [trial for trial in trials if trial.method == method]


class Counting(Silent):
    """How many runs ended, and what was expected at last."""

    ended, left = 0, -1.0

    def end(self, outcome: Outcome) -> None:
        self.ended += 1

    def expect(self, seconds: float) -> None:
        self.left = seconds


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuning, list[Trial]]:
    search, watcher = tuning(tmp_path_factory.mktemp("tuning")), Counting()
    trials = search.run(watcher)
    assert watcher.ended == search.runs == 2 * (9 + 3)
    assert watcher.left == 0
    return search, trials


def test_the_best_third_goes_on(done: tuple[Tuning, list[Trial]]) -> None:
    search, trials = done
    assert search.halving.rungs == [3, 9]
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
        search = tuning(tmp_path, rounds=rounds).halving
        assert (search.every, search.rungs) == (every, rungs)


def test_what_is_still_to_come_is_told_with_what_is_trained() -> None:
    """Of 9 trials, 27 rounds until the first comparison and 3 times 6 after it; Optuna's 12 are 9 and 3."""
    told: list[tuple[int, int, float]] = []

    def train(trials: Any, rounds: int, times: float) -> None:
        told.append((len(trials), rounds, times))
        for trial in trials:
            trial.scores[rounds] = trial.number

    space = space_of(Method.parse("fedavg"))
    Halving([Search(space, 0, 9)], 9, 9).run(train)
    assert told == [(9, 3, 18 / 27), (3, 9, 0)]
    told.clear()

    class Slowly(Search):
        batch = 9

    halving = Halving([Slowly(space, 0, 12)], 9, 12)
    halving.run(train)
    assert told == [(9, 3, (18 + 9 + 6) / 27), (3, 9, (9 + 6) / 18), (3, 3, 6 / 9), (1, 9, 0)]
    assert halving.trainings == sum(trials for trials, _, _ in told)


def test_time_left_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds have passed and five are left of what is trained; what comes after takes twice as long."""
    now = [0.0]
    monkeypatch.setattr("fedcohort.runs.tuning.tuning.time.monotonic", lambda: now[0])
    counting = Counting()
    watcher = _AndLater(counting, times=2)
    now[0] = 10.0
    watcher.expect(5.0)
    assert counting.left == 5 + 2 * 15


@pytest.mark.parametrize(("seconds", "batches"), [(100.0, 3), (89.0, 2), (1.0, 1)])
def test_trials_that_would_end_too_late_are_not_begun(seconds: float, batches: int) -> None:
    """Each three of a method take 30 seconds; the first are begun in any case."""
    now = [0.0]

    def train(trials: Any, rounds: int, _: float) -> None:
        now[0] += 15
        for trial in trials:
            trial.scores[rounds] = 0.5

    searches = [Search(space_of(Method.parse(name)), 0, None) for name in ("fedavg", "fedprox")]
    halving = Halving(searches, 9, None, seconds, clock=lambda: now[0])
    trials = halving.run(train)
    assert len(of(trials, 0)) == len(of(trials, 1)) == AT_A_TIME * batches
    assert halving.trainings is None


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


def test_what_the_file_has_is_a_value_like_others(done: tuple[Tuning, list[Trial]]) -> None:
    search, trials = done
    first, second = of(trials, 1)[:2]
    own = {LR: 0.0011, "method.fedprox.mu": 0.01, "method.server_sgd.lr": 1.0}
    assert (first.point, search.values(first)) == ({}, own)
    assert search.values(second) == second.point


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


@pytest.mark.parametrize(
    ("method", "trials", "levels"),
    [
        ("fedavg", 9, [4, 2]),
        ("fedprox", 9, [2, 2, 2]),
        ("fedprox", 27, [4, 3, 2]),
        ("fedprox", 4, [3, 1, 1]),
        ("fedprox", 2, [1, 1, 1]),
    ],
)
def test_a_grid_has_every_combination_once(method: str, trials: int, levels: list[int]) -> None:
    """As even as can be, the learning rate first; what is left of the budget is at random."""
    space = space_of(Method.parse(method))
    grid, rest = Grid(space, 0, trials), Search(space, 0, trials)
    points = [grid.ask(number) for number in range(trials)]
    combinations = prod(levels) if max(levels) > 1 else 0
    even = points[1 : combinations + 1]
    assert points[0] == {}
    assert len({tuple(point.items()) for point in even}) == combinations
    for key, many in zip(space, levels, strict=True):
        assert len({point[key] for point in even if key in point}) == (many if many > 1 else 0)
    left = range(combinations + 1, trials)
    assert points[combinations + 1 :] == [rest.ask(number) for number in left]
    assert 0 <= len(left) <= trials // 3 + 1


def test_a_grid_lies_in_the_middle_of_its_cells() -> None:
    """Of four cells between 0.001 and 1, by magnitude: 3 / 8 of an order of magnitude from the ends."""
    grid = Grid(space_of(Method.parse("fedavg")), 0, 9)
    rates = sorted({grid.ask(number)[LR] for number in range(1, 9)})
    assert rates == pytest.approx([10 ** (-3 + 3 * share / 8) for share in (1, 3, 5, 7)], rel=0.01)


def test_optuna_learns_from_trials_and_comes_to_the_same_again() -> None:
    """Where accuracy falls with the distance from a learning rate of 0.1, it proposes nearer and nearer."""
    pytest.importorskip("optuna", reason="the extra 'tune' is not installed")
    space = space_of(Method.parse("fedavg"))

    def far(point: dict[str, Any]) -> float:
        return abs(math.log10(point.get(LR, 1.0) / 0.1))

    def train(trials: Any, rounds: int, _: float) -> None:
        for trial in trials:
            trial.scores[rounds] = 1 - far(trial.point) / 4

    first, again = (Halving([Optuna(space, 0, 63)], 9, 63).run(train) for _ in "ab")
    assert first == again
    assert first[0].point == {}
    distances = [far(trial.point) for trial in first[1:]]
    assert sum(distances[-18:]) < sum(distances[:18]) / 2  # at random: more
    assert all(value == float(f"{value:.3g}") for trial in first for value in trial.point.values())


def test_trials_are_judged_under_all_conditions_that_are_swept(tmp_path: Path) -> None:
    sweep = {"partition.alpha": [0.5, 5.0], "local.lr": [0.1, 0.2]}
    asked = without_tuned(Experiment.of({**TABLE, "method": "fedavg", "rounds": 2, "sweep": sweep}))
    assert asked.notes[-1] == "tuning looks for local.lr itself: the values in [sweep] are left out"
    search = begin(asked, tmp_path, "random", 3, math.inf)
    trials = search.run(Silent())
    assert search.runs == (3 + 1) * 2 == len(runs_of(search.home)) + 2
    (best,) = search.best(trials)
    went = [run for run in runs_of(search.home) if RunSettings.read(run).rounds == 2]
    told = [
        row.value for run in went for row in read_table(run / "table.csv") if row.key == "global.accuracy"
    ]
    late = told[1::2]  # of two rounds, the second
    assert sorted(RunSettings.read(run).table["partition"]["alpha"] for run in went) == [0.5, 5.0]
    assert best.score == pytest.approx(sum(late) / 2)
    assert late[0] != late[1]
    assert search.tuned(trials).table()["sweep"] == {"partition.alpha": [0.5, 5.0]}
    assert reopen(search.home).run(Silent()) == trials


def test_a_directory_is_trusted_no_more_than_one_of_runs(tmp_path: Path) -> None:
    search = begin(Experiment.of({**TABLE, "rounds": 1}), tmp_path, "random", 1, math.inf)
    path = search.home / "tune.toml"
    begun = path.read_text()
    path.write_text(f'imports = ["json"]\n{begun}\n[run]\nray = "elsewhere:1"\n')
    with pytest.raises(UserError, match=r"import 'json', as its files say: .* add --trust"):
        reopen(search.home)
    assert reopen(search.home, trust=True).experiment.means.ray == ""


def test_help_tells_how_many_trials_a_method_gets(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"without it {EACH} for each method" in told


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--budget", "0"], "every method needs a trial, so give at least 2"),
        (["--budget", "0", "--per-method"], "every method needs a trial, so give at least 1"),
        (["--budget", "4", "--time", "3m"], "--budget and --time exclude each other"),
        (["--time", "soon"], "write a time like 90s, 30m or 2h"),
        (["--time", "99999d"], "--time 99999d: give at most 10,000 days"),
        (["--time", "3m", "--sampler", "grid"], "needs to know how many trials there are: give --budget"),
        (["--budget", "600", "--per-method"], "make up to 1,200 runs: shorten the lists, or add --yes"),
        (["--budget", str(2 * MOST + 2)], "that is 10,001 trials of a method, give at most 10,000"),
        (["--trust"], "--trust goes with --resume"),
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


def test_a_trial_without_late_numbers_is_the_worst() -> None:
    """Somebody's table may lack them."""
    assert late_score([], 4) < late_score([Row(4, "global", "", "", "accuracy", 0.0)], 4) == 0
