"""The command line as a program of its own: exit codes, pipes, Ctrl-C."""

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fedcohort.runs.recorder import Recorder
from support.cli_calls import Cli, contents

PROGRAM = [sys.executable, "-m", "fedcohort"]
SCRIPT = Path(sys.executable).with_name("fedcohort")
INSTALLED = [str(SCRIPT)] if SCRIPT.exists() else PROGRAM


def call(program: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program, *words], capture_output=True, text=True, timeout=60)


def test_mistake_is_exit_code_two(here: Path) -> None:
    before = contents(here)
    done = call(PROGRAM, "run", "e.toml", "--set", "local.lr=x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: local.lr: 'x' is not a number\n"
    assert contents(here) == before


@pytest.mark.deploy
def test_console_script_runs_an_experiment_and_says_a_warning_once(here: Path) -> None:
    """Six clients, four of which train a round, so that at most two can rest; three shall."""
    methods = "method=['fedentopt', 'fedentopt+fedprox']"
    done = call(INSTALLED, "run", "e.toml", "--set", "cohort=4", "--set", methods, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    ran = [run["method"] for run in json.loads(done.stdout)["runs"]]
    assert ran == ["fedentopt", "fedentopt+fedprox"]
    assert done.stderr.startswith("warning: fedentopt: a buffer of 0.5 leaves too few clients")
    assert done.stderr.count("\n") == 1


@pytest.mark.deploy
def test_a_reader_that_goes_away_is_no_error(here: Path) -> None:
    """Like ``fedcohort methods | head -1``."""
    done = subprocess.run(
        f"{shlex.join(PROGRAM)} methods | true", shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""


@pytest.mark.deploy
def test_ctrl_c_keeps_the_last_round_and_names_the_command_that_goes_on(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(
        [*PROGRAM, "run", "e.toml", "--set", "rounds=2000", "--out", "my runs", "--json", "--quiet"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_rounds(here / "my runs", 25)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == ""
    said = "Stopped; nothing is lost. Continue with: fedcohort "
    assert err.startswith(said)
    assert err.count("\n") == 1

    table = next((here / "my runs").glob("*/*/table.csv"))
    rows_before = table.read_text()
    last = int(rows_before.splitlines()[-1].partition(",")[0])
    going_on = shlex.split(err.removeprefix(said))
    assert going_on == ["run", "--resume", "my runs/e-001"]
    write = Recorder._write

    def interrupted(*about: Any) -> None:
        if rounds_of(table) >= last + 10:
            raise KeyboardInterrupt
        write(*about)

    monkeypatch.setattr(Recorder, "_write", interrupted)
    again = cli(*going_on)
    assert (again.code, again.out) == (130, "")
    assert rounds_of(table) >= last + 10
    assert table.read_text().startswith(
        rows_before
    )  # the stopped round was complete and nothing was done twice


def wait_for_rounds(out: Path, number: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for table in out.glob("*/*/table.csv"):
            if rounds_of(table) >= number:
                return
        time.sleep(0.02)
    raise AssertionError(f"round {number} did not come")


def rounds_of(table: Path) -> int:
    """The last round that stands in a table."""
    lines = table.read_bytes()[-4000:].splitlines()[:-1]  # the last may be half written
    head = lines[-1].partition(b",")[0] if lines else b""
    return int(head) if head.isdigit() else 0
