"""A run that was stopped anywhere and continued ends with the same bytes as one that was not.

Stopped politely by a callback, by Ctrl-C at the worst moments, by a power cut at any write, and by
``kill -9`` of the real program.
"""

import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from safetensors.torch import save_file

from fedcohort.cli.progress import Silent
from fedcohort.core import client_store
from fedcohort.core.method import METHODS
from fedcohort.core.state import State
from fedcohort.runs import comparison
from fedcohort.runs.comparison import ASKED, StoppedError, carry_out, compare, prepare, resume
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.recorder import Recorder, read_result
from fedcohort.runs.run import Callback, Result, run
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError

KEPT = ("state.safetensors", "table.csv", "result.json")
ROUNDS = 5
KILLS = 4
SPLITTING = "fedgwc(tolerance=10.0, min_group=2)"  # every change is small enough: splits as soon as it may
COMBINATIONS = (
    f"scaffold+{SPLITTING}",
    "fedlecc(loss_source='last_seen')+fedprox(mu=0.1)+fedavgm+clust_psi_pfl",
    f"fedentopt+cafa+{SPLITTING}",
)
TABLE: dict[str, Any] = {
    "rounds": ROUNDS,
    "cohort": 4,
    "data": {"source": "synthetic", "samples": 240, "classes": 4, "features": 5},
    "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.3, "min_size": 8},
    "split": {"validation": 0.2},
    "model": "logistic",
    "local": {"batch": 8},
    "faults": {"dropout": 0.25},
    "evaluate": {
        "every": 2,
        "clients_every": 2,
        "target": 0.5,
        "adapted": True,
        "last": 3,
        "blocks": 2,
        "smooth": 0.9,
        "best": True,
    },
}


def experiment(*methods: str, **changes: Any) -> Experiment:
    return Experiment.of({**TABLE, "method": list(methods), **changes})


class StopAfter(Callback):
    """Ends a run early, politely or by Ctrl-C."""

    def __init__(self, number: int, error: type[BaseException] | None = None) -> None:
        self.number, self.error = number, error

    def after_round(self, state: State, *_: Any) -> bool:
        if state.round == self.number and self.error is not None:
            raise self.error
        return state.round == self.number

    def close(self, state: State) -> None:
        pass


def go_on(
    asked: Experiment, directory: Path, before: Sequence[Any] = (), after: Sequence[Any] = (), every: int = 2
) -> Result:
    """Runs the first method of an experiment in this directory, from wherever it stands."""
    method, seed = asked.methods[0], asked.seeds[0]
    task = asked.task(seed)
    recorder = Recorder(directory, asked.table(method, seed), task.federation.fingerprint(), every)
    restored = recorder.open()
    callbacks = (*before, recorder, *after)
    result = run(method, task, asked.rounds, asked.evaluation, callbacks, restored)
    if result.state.round == asked.rounds:
        recorder.finish(result.metrics)
    return result


def kept(directory: Path) -> dict[str, bytes]:
    return {name: (directory / name).read_bytes() for name in KEPT}


STOPS = (1, 2, 4)  # before, at and after a checkpoint of every second round
CASES = [
    *((name, (STOPS[number % 3],)) for number, name in enumerate(METHODS.names())),
    *((method, STOPS) for method in (SPLITTING, *COMBINATIONS)),
]


@pytest.mark.parametrize(("method", "stops"), CASES, ids=lambda case: case if isinstance(case, str) else "")
def test_stopped_and_continued_is_uninterrupted(method: str, stops: tuple[int], tmp_path: Path) -> None:
    asked = experiment(method)
    whole, expected = uninterrupted(method)
    if "tolerance" in method:
        assert whole.metrics["groups"] > 1  # or splits are not tested
    for stop in stops:
        assert go_on(asked, tmp_path, after=[StopAfter(stop)]).state.round == stop
    go_on(asked, tmp_path)
    assert kept(tmp_path) == expected


@cache
def uninterrupted(method: str, every: int = 2) -> tuple[Result, dict[str, bytes]]:
    """The run that nothing stopped, and the files that it left."""
    with tempfile.TemporaryDirectory() as folder:
        return go_on(experiment(method), Path(folder), every=every), kept(Path(folder))


def test_continued_after_every_round(tmp_path: Path) -> None:
    for stop in range(1, ROUNDS + 1):
        go_on(experiment(COMBINATIONS[0]), tmp_path, after=[StopAfter(stop)])
    assert kept(tmp_path) == uninterrupted(COMBINATIONS[0])[1]


@pytest.mark.parametrize("moment", ["before the rows are written", "amid the rows", "after the rows"])
def test_ctrl_c_loses_at_most_the_round_it_hits(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = experiment(COMBINATIONS[0])
    stop = StopAfter(3, KeyboardInterrupt)
    before, after = ([stop], []) if moment.startswith("before") else ([], [stop])
    if moment == "amid the rows":
        write = Recorder._write

        def half(self: Recorder, rows: Sequence[Any]) -> None:
            write(self, rows[: len(rows) // 2 if rows[0][0] == 3 else None])
            if rows[0][0] == 3:
                raise KeyboardInterrupt

        monkeypatch.setattr(Recorder, "_write", half)
    with pytest.raises(KeyboardInterrupt):
        go_on(asked, tmp_path, before, after)
    monkeypatch.undo()
    lost = 0 if moment.startswith("after") else 1
    again = Rounds()
    go_on(asked, tmp_path, after=[again])
    assert again.seen == list(range(4 - lost, ROUNDS + 1))
    assert kept(tmp_path) == uninterrupted(COMBINATIONS[0])[1]


class Rounds(Callback):
    """Notes which rounds were trained."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_round(self, state: State, *_: Any) -> bool:
        self.seen.append(state.round)
        return False

    def close(self, state: State) -> None:
        pass


class PowerCutError(BaseException):
    """Nothing reaches the disk any more."""


def test_power_cut_at_any_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine goes off before the n-th flush or rename, for every n."""
    asked = experiment("scaffold", rounds=3, evaluate={"every": 2})
    go_on(asked, tmp_path / "whole", every=1)
    fsync, replace = os.fsync, Path.replace
    n, done = 0, False
    while not done:
        left = n

        def spend() -> None:
            nonlocal left
            if left == 0:
                raise PowerCutError
            left -= 1

        monkeypatch.setattr(os, "fsync", lambda handle: (spend(), fsync(handle))[1])
        monkeypatch.setattr(Path, "replace", lambda path, target: (spend(), replace(path, target))[1])
        directory = tmp_path / f"cut{n}"
        try:
            go_on(asked, directory, every=1)
            done = True
        except PowerCutError:
            monkeypatch.undo()
            go_on(asked, directory, every=1)
        monkeypatch.undo()
        assert kept(directory) == kept(tmp_path / "whole"), f"cut before write {n}"
        n += 1
    assert n > 15  # five writes for each checkpoint


@pytest.mark.parametrize(("pause", "saved"), [(0.0, [10, 20, 30]), (1e9, [10, 30])])
def test_checkpoints_that_take_long_are_rare(
    pause: float, saved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tells how long they take; the last is made in any case."""
    rounds, save = [], checkpoint.save
    monkeypatch.setattr(comparison, "PAUSE", pause)
    monkeypatch.setattr(
        checkpoint,
        "save",
        lambda where, tensors, facts: (rounds.append(int(tensors["round"])), save(where, tensors, facts)),
    )
    compare(experiment("fedavg", rounds=30), tmp_path, Silent())
    assert rounds == saved


@pytest.mark.parametrize("damage", ["flipped", "cut short", "emptied", "gone"])
def test_damaged_checkpoint_gives_way_to_the_one_before(damage: str, tmp_path: Path) -> None:
    asked = experiment("scaffold")
    go_on(asked, tmp_path, after=[StopAfter(3)], every=1)
    spoil(tmp_path / "state.safetensors", damage)
    trained = Rounds()
    go_on(asked, tmp_path, after=[trained], every=1)
    assert trained.seen == [3, 4, 5]
    assert kept(tmp_path) == uninterrupted("scaffold", every=1)[1]


def spoil(path: Path, damage: str) -> None:
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "flipped":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))  # the last bit of the last tensor
    else:
        path.write_bytes(data[: len(data) // 2] if damage == "cut short" else b"")


def test_two_damaged_checkpoints_are_an_error_that_touches_nothing(tmp_path: Path) -> None:
    asked = experiment("fedavg")
    go_on(asked, tmp_path, after=[StopAfter(3)], every=1)
    for name in ("state.safetensors", "state.previous.safetensors"):
        spoil(tmp_path / name, "flipped")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError, match=r"state.safetensors and state.previous.safetensors cannot be read"):
        go_on(asked, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_without_a_checkpoint_begins_again(tmp_path: Path) -> None:
    """As left by a kill at any time before the first checkpoint."""
    asked = experiment("fedavg")
    go_on(asked, tmp_path / "early", after=[StopAfter(1)])
    (tmp_path / "early" / "state.safetensors").unlink()
    go_on(asked, tmp_path / "early")
    (tmp_path / "earlier").mkdir()
    go_on(asked, tmp_path / "earlier")
    assert kept(tmp_path / "early") == kept(tmp_path / "earlier") == uninterrupted("fedavg")[1]


def test_changed_settings_are_named(tmp_path: Path) -> None:
    go_on(experiment("fedavg"), tmp_path, after=[StopAfter(2)])
    with pytest.raises(UserError, match=r"local.lr is 0.5 here and 0.05 there"):
        go_on(experiment("fedavg", local={"batch": 8, "lr": 0.5}), tmp_path)
    text = (tmp_path / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("cohort = 4", "cohort = 3"))
    for again in (lambda: resume(tmp_path, Silent()), lambda: go_on(experiment("fedavg"), tmp_path)):
        with pytest.raises(UserError, match=r"cohort is . here and . there"):
            again()


def test_changed_settings_of_a_complete_run_are_named(tmp_path: Path) -> None:
    """Not answered with the old numbers."""
    go_on(experiment("fedavg"), tmp_path)
    text = (tmp_path / "config.toml").read_text()
    (tmp_path / "config.toml").write_text(text.replace("rounds = 5", "rounds = 6"))
    with pytest.raises(UserError, match="rounds is 6 here and 5 there"):
        resume(tmp_path, Silent())


def test_changed_data_are_noticed(tmp_path: Path) -> None:
    """The settings are the same, the file they name is not."""
    rows = [f"{i % 7},{i % 5},{i % 2}" for i in range(60)]
    file = tmp_path / "patients.csv"
    data = {"source": "table", "path": str(file), "label": "outcome"}
    deal = {"name": "iid", "clients": 4}
    file.write_text("\n".join(["age,dose,outcome", *rows]))
    go_on(experiment("fedavg", data=data, partition=deal), tmp_path / "run", after=[StopAfter(2)])
    from fedcohort.runs.experiment import _cached_dataset, _cached_federation

    _cached_dataset.cache_clear()
    _cached_federation.cache_clear()
    file.write_text("\n".join(["age,dose,outcome", *rows[:-1], "9,9,1"]))
    with pytest.raises(UserError, match="the data changed since the run was started"):
        go_on(experiment("fedavg", data=data, partition=deal), tmp_path / "run")


def test_a_table_that_lost_rows_is_noticed(tmp_path: Path) -> None:
    go_on(experiment("fedavg"), tmp_path, after=[StopAfter(2)])
    table = tmp_path / "table.csv"
    table.write_bytes(table.read_bytes()[:-10])
    with pytest.raises(UserError, match=r"table\.csv is shorter than its checkpoint says"):
        go_on(experiment("fedavg"), tmp_path)


class StopAt(Silent):
    """Ctrl-C at the start of the n-th run."""

    def __init__(self, number: int) -> None:
        self.left = number

    def begin(self, *about: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().begin(*about)


def test_a_comparison_goes_on_with_what_is_left(tmp_path: Path) -> None:
    """Complete runs stay untouched; those that had not begun are run too."""
    asked = experiment("fedavg", SPLITTING, seeds=[0, 1])
    home, outcomes = compare(asked, tmp_path / "whole", Silent())
    plan = prepare(asked, tmp_path / "stopped")
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan, StopAt(3))
    assert plan.open >= 2, (
        "the one that was stopped, and at least one that had to stop with it or never began"
    )
    complete = [job.directory / "table.csv" for job in plan.jobs if read_result(job.directory)]
    touched = [table.stat().st_mtime_ns for table in complete]
    again = resume(plan.home, Silent())
    assert [table.stat().st_mtime_ns for table in complete] == touched
    assert [outcome.metrics for outcome in again] == [outcome.metrics for outcome in outcomes]
    assert everything(plan.home) == everything(home)


def everything(home: Path) -> dict[str, bytes]:
    """The asked-for results of all runs below a directory."""
    found = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in home.glob("*/*")}
    return {key: data for key, data in found.items() if key.rpartition("/")[2] in KEPT}


def test_a_directory_can_move_before_it_is_resumed(tmp_path: Path) -> None:
    asked = experiment("fedavg")
    plan = prepare(asked, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan, StopAt(1))
    moved = shutil.move(plan.home, tmp_path / "elsewhere")
    (outcome,) = resume(Path(moved), Silent())
    assert isinstance(outcome, Outcome)
    assert outcome.directory.parent == tmp_path / "elsewhere"


@pytest.mark.deploy
def test_kill_minus_nine(tmp_path: Path) -> None:
    """The real program, killed at random moments of its work; ``test_power_cut_at_any_write`` is its twin."""
    table = {**TABLE, "rounds": 40, "method": [COMBINATIONS[0], "fedlecc"], "evaluate": {"every": 4}}
    (tmp_path / "e.toml").write_text(tomli_w.dumps(table))
    program = [sys.executable, "-m", "fedcohort", "run", "--quiet"]
    whole, out = tmp_path / "whole", tmp_path / "out"
    anew = [*program, str(tmp_path / "e.toml"), "--out"]
    compare(Experiment.read(tmp_path / "e.toml"), whole, Silent())

    draw, kills, command = random.Random(7), 0, [*anew, str(out)]
    while kills < KILLS:
        before = progress(out)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait(lambda process=process, before=before: progress(out) != before or process.poll() is not None)
        time.sleep(draw.uniform(0, 0.25))
        process.kill()
        if process.wait() == 0:
            break
        kills, command = kills + 1, [*program, "--resume", str(out / "e-001")]
    assert kills == KILLS  # or the run is too short for this test
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert everything(out / "e-001") == everything(whole / "e-001")
    assert len(everything(out / "e-001")) == 2 * len(KEPT)


def progress(out: Path) -> list[int]:
    """Changes as soon as a run begins or goes on."""
    found = [*out.glob(f"*/{ASKED}"), *out.glob("*/*/table.csv")]
    return [path.stat().st_mtime_ns for path in found]


def wait(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


FORGERIES = {
    "gone": lambda value: None,
    "of another shape": lambda value: torch.cat([value.flatten(), value.new_zeros(1)]),
    "of another kind": lambda value: value.bool() if value.dtype != torch.bool else value.double(),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_checkpoint_is_refused(forgery: str, tmp_path: Path) -> None:
    """Well sealed, but one of its tensors is none that this method could have left there."""
    home, before = stopped(f"scaffold+fedcor+topk(0.5)+{SPLITTING}", tmp_path)
    tensors, facts = checkpoint.load(home)
    for name, value in tensors.items():
        forged = {**tensors, name: FORGERIES[forgery](value)}
        checkpoint.save(home, {key: own for key, own in forged.items() if own is not None}, facts)
        with pytest.raises(UserError, match=r"state.safetensors.* start"):
            resume(home, Silent())
        assert {name: (home / name).read_bytes() for name in before} == before, name
    checkpoint.save(home, {**tensors, "grouping/unheard": torch.zeros(2)}, facts)
    with pytest.raises(UserError, match="what the grouping remembers cannot be so"):
        resume(home, Silent())
    checkpoint.save(home, tensors, facts)
    assert resume(home, Silent())[0]  # it was nothing else


def test_a_forged_memory_of_a_client_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is too large for the checkpoint, and has a file of its own."""
    monkeypatch.setattr(client_store, "IN_MEMORY", 0)
    home, _ = stopped("scaffold", tmp_path)
    own = sorted((home / "clients").glob("*.safetensors"))[0]
    good = own.read_bytes()
    for forged in ({"c": torch.zeros(3)}, {"d": torch.zeros(1)}, {}):
        save_file(forged, own)
        with pytest.raises(UserError, match="what a client remembers cannot be so"):
            resume(home, Silent())
    own.write_bytes(good)
    assert resume(home, Silent())[0]


@pytest.mark.parametrize(
    ("method", "name", "number"),
    [
        ("fedentopt", "group/0/selector/buffer", 7),
        ("fedentropy", "group/0/selector/value", math.nan),
        ("fedconcat(rounds=2)", "grouping/placed", 0),
    ],
)
def test_forged_numbers_from_which_no_round_can_be_made(
    method: str, name: str, number: float, tmp_path: Path
) -> None:
    home, before = stopped(method, tmp_path)
    tensors, facts = checkpoint.load(home)
    checkpoint.save(home, {**tensors, name: torch.full_like(tensors[name], number)}, facts)
    with pytest.raises(UserError, match=r"state.safetensors is damaged \(round 4 cannot be made from it"):
        resume(home, Silent())
    assert (home / "table.csv").read_bytes() == before["table.csv"]


class StopEarly(Silent):
    """Ends every run after three rounds."""

    def begin(self, *about: Any) -> Any:
        return StopAfter(3)


def stopped(method: str, out: Path) -> tuple[Path, dict[str, bytes]]:
    """The directory of a run that ended after three rounds, and what is in it beside its checkpoint."""
    plan = prepare(experiment(method), out)
    job = plan.jobs[0]
    with pytest.raises(StoppedError):
        carry_out(plan, StopEarly())
    files = {p.name: p.read_bytes() for p in job.directory.iterdir() if p.is_file() and "state" not in p.name}
    return job.directory, files
