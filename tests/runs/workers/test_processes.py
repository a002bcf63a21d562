"""Runs side by side in processes: the same results, and nothing lost when they are stopped."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedcohort.cli.progress import Silent
from fedcohort.runs import comparison
from fedcohort.runs.comparison import FailedRunsError, carry_out, compare, prepare, resume
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.run import Callback
from fedcohort.util.warnings import warnings_to
from support.processes import is_alive

ASKED = {
    "name": "crew",
    "rounds": 4,
    "seeds": [0, 1],
    "cohort": 3,
    "method": ["fedavg", "scaffold", "power_of_choice"],  # none for which each process imports scikit-learn
    "data": {"source": "synthetic", "samples": 300, "classes": 3, "features": 6},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 0.5},
    "model": {"name": "logistic"},
}


class Notes(Silent, Callback):
    """Writes down what it is told."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.begun: list[tuple[str, int]] = []
        self.rounds, self.ended, self.stop_at = 0, 0, stop_at

    def begin(self, method: str, seed: int, rounds: int) -> Any:
        self.begun.append((method, seed))
        if len(self.begun) == self.stop_at:
            raise KeyboardInterrupt
        return self

    def after_round(self, *about: Any) -> bool:
        self.rounds += 1
        return False

    def close(self, state: Any) -> None: ...

    def end(self, outcome: Any) -> None:
        self.ended += 1


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "WORTH_IT", 0)
    monkeypatch.setattr(comparison, "side_by_side", lambda: 2)


def tables(home: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in home.glob("*/table.csv")}


@pytest.mark.deploy
def test_runs_side_by_side_give_the_same_bytes(tmp_path, monkeypatch, together):
    asked, notes = Experiment.of(ASKED), Notes()
    home, outcomes = compare(asked, tmp_path / "together", notes)
    assert (len(notes.begun), notes.rounds, notes.ended) == (6, 24, 6)
    monkeypatch.setattr(comparison, "side_by_side", lambda: 1)
    alone, others = compare(asked, tmp_path / "alone", Silent())
    assert [outcome.metrics for outcome in outcomes] == [outcome.metrics for outcome in others]
    assert tables(home) == tables(alone)
    commands = [json.loads(path.read_text())["command"] for path in home.glob("*/env.json")]
    assert commands == [sys.argv] * 6  # that of the user, not of the process that ran it


@pytest.mark.deploy
def test_warnings_of_all_processes_are_told_once(tmp_path, together):
    """Six clients, five of which train a round, so that three cannot rest."""
    asked, told = Experiment.of({**ASKED, "cohort": 5, "method": ["fedentopt"], "seeds": [0, 1, 2, 3]}), []
    with warnings_to(told.append):
        warnings.simplefilter("always")
        compare(asked, tmp_path, Silent())
    assert len(told) == 1
    assert told[0].startswith("fedentopt: a buffer of 0.5")


@pytest.mark.deploy
def test_stopping_ends_all_and_loses_nothing(tmp_path, monkeypatch, together):
    asked = Experiment.of({**ASKED, "rounds": 30})
    plan = prepare(asked, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carry_out(plan, Notes(stop_at=3))
    assert plan.open >= 3
    assert children() == []
    outcomes = resume(plan.home, Silent())
    monkeypatch.setattr(comparison, "side_by_side", lambda: 1)
    whole = compare(asked, tmp_path / "whole", Silent())[1]
    assert [outcome.metrics for outcome in outcomes] == [outcome.metrics for outcome in whole]


class Failures(Silent):
    """Writes down which runs failed."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, int]] = []

    def fail(self, method: str, seed: int, error: Exception) -> None:
        self.failed.append((method, seed))


@pytest.mark.deploy
@pytest.mark.parametrize("size", [1, 2])
def test_a_run_that_fails_ends_no_other(size, tmp_path, monkeypatch, together):
    """Neither here nor in a process; all is told when the others are complete, and goes on from there."""
    monkeypatch.setattr(comparison, "side_by_side", lambda: size)
    plan, watcher = prepare(Experiment.of(ASKED), tmp_path), Failures()
    damaged = plan.jobs[0], plan.jobs[2]
    for job in damaged:
        job.directory.mkdir()
        (job.directory / "config.toml").write_text("not = [valid")
    with (
        pytest.warns(RuntimeWarning, match="seed 0, failed: .* is not valid TOML"),
        pytest.raises(FailedRunsError, match=r"^2 of 6 runs failed; fedavg, seed 0: .* is not valid TOML"),
    ):
        carry_out(plan, watcher)
    assert children() == []
    assert plan.open == 2
    assert sorted(watcher.failed) == sorted(job.key for job in damaged)
    for job in damaged:
        (job.directory / "config.toml").unlink()
        job.directory.rmdir()
    assert len(resume(plan.home, Silent())) == 6


GROUP = Path("/proc/self/autogroup")


@pytest.mark.skipif(not GROUP.exists(), reason="this system has no groups for sessions")
def test_who_is_nice_is_so_to_all_sessions():
    """As the members of a pool are, each in a session of its own, when the command was begun with nice."""
    code = "import os; from fedcohort.util.cpu import stay_nice; os.nice(7); os.setsid(); stay_nice(); "
    told = subprocess.run(
        [sys.executable, "-c", f"{code}print(open('{GROUP}').read())"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split()[1:] == ["nice", "7"]


class Killer(Failures):
    """Kills one of the processes after the third round that is told."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0

    def begin(self, method: str, seed: int, rounds: int) -> Any:
        callback = super().begin(method, seed, rounds)

        def after_round(*about: Any) -> bool:
            self.rounds += 1
            if self.rounds == 3:
                os.kill(children()[0], signal.SIGKILL)
            return False

        callback.after_round = after_round  # type: ignore[method-assign]
        return callback


@pytest.mark.deploy
def test_a_process_that_is_killed_ends_no_other(tmp_path, together):
    """As where memory is short: its run is told, the others are complete, and it goes on later."""
    plan, watcher = prepare(Experiment.of({**ASKED, "rounds": 30}), tmp_path), Killer()
    with (
        pytest.warns(RuntimeWarning, match="failed: its process was killed"),
        pytest.raises(FailedRunsError, match=r"^1 of 6 runs failed; .* its process was killed"),
    ):
        carry_out(plan, watcher)
    assert len(watcher.failed) == plan.open == 1
    assert children() == []
    assert len(resume(plan.home, Silent())) == 6


def test_a_complete_run_that_is_damaged_hides_no_other(tmp_path):
    plan = prepare(Experiment.of({**ASKED, "method": ["fedavg"]}), tmp_path)
    carry_out(plan, Silent())
    (plan.jobs[0].directory / "config.toml").write_text("not = [valid")
    with pytest.raises(FailedRunsError, match=r"^1 of 2 runs failed; .* is not valid TOML") as raised:
        carry_out(plan, Silent())
    assert [outcome.seed for outcome in raised.value.outcomes] == [1]


OWN = '''"""Fails in its first round, with an error that cannot be pickled."""

from dataclasses import dataclass

from fedcohort.api import Selector, register


class TwoThings(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


@register
@dataclass(frozen=True)
class FailsInAProcess(Selector):
    def select(self, memory, now, losses):
        raise TwoThings("this", "that")
'''


@pytest.mark.deploy
def test_an_error_of_the_users_own_code_is_told_with_its_place(elsewhere, together):
    (elsewhere / "fails_in_a_process.py").write_text(OWN)
    methods = ["fedavg", "scaffold", "fails_in_a_process"]
    asked = Experiment.of({**ASKED, "imports": ["fails_in_a_process"], "method": methods})
    with (
        pytest.warns(RuntimeWarning, match="failed: .*this and that") as told,
        pytest.raises(RuntimeError, match="TwoThings: this and that") as raised,
    ):
        compare(asked, elsewhere, Silent())
    assert "in select" in raised.value.__notes__[0]
    assert len(told) == 1  # of two seeds


@pytest.mark.deploy
def test_a_killed_parent_leaves_no_process_behind(tmp_path):
    (tmp_path / "asked.toml").write_text(tomli_w.dumps({**ASKED, "rounds": 100_000, "seeds": [0, 1, 2]}))
    script = (
        "from pathlib import Path; from fedcohort.runs import comparison\n"
        "from fedcohort.runs.experiment import Experiment\n"
        "from fedcohort.runs.workers.processes import ProcessPool\n"
        "from fedcohort.cli.progress import Silent\n"
        "from fedcohort.runs.workers.schedule import Schedule, Timed\n"
        "plan = comparison.prepare(Experiment.read(Path('asked.toml')), Path('out'))\n"
        "with ProcessPool(2) as pool:\n"
        "    print(*(process.pid for _, process in pool.members), flush=True)\n"
        "    pool.carry_out(Timed(Silent(), Schedule(plan.jobs)))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        members = [int(pid) for pid in parent.stdout.readline().split()]
        while not list((tmp_path / "out").glob("*/*/table.csv")):
            time.sleep(0.05)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(is_alive(pid) for pid in members) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in members)


def children() -> list[int]:
    """Processes of this one that run a crew."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if (
                parent == os.getpid()
                and b"fedcohort.runs.workers.processes" in (entry / "cmdline").read_bytes()
            ):
                found.append(int(entry.name))
        except (OSError, ValueError):
            continue
    return found
