"""``fedcohort watch`` follows runs of another process until they end, and changes nothing."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from fedcohort.cli import watch as watching
from fedcohort.cli.app import main
from fedcohort.cli.progress import Silent
from fedcohort.cli.watch import watch
from fedcohort.runs.comparison import resume
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held
from support.run_files import Write, rows

ENDLESS = (
    "rounds = 100000\nmethod = ['fedavg']\nmodel = 'logistic'\n"
    "[data]\nsource = 'synthetic'\nsamples = 60\n[partition]\nname = 'iid'\nclients = 3\n"
)


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=100, no_color=True, highlight=False)


def said(by: Console) -> str:
    assert isinstance(by.file, io.StringIO)
    return by.file.getvalue()


def test_a_finished_run_is_shown_at_once(write_run: Write) -> None:
    run, out = write_run(complete=True), console()
    watch(run, out)
    assert f"{run}: 1 of 1 runs complete" in said(out).replace("\n", "")
    assert "50.0%" in said(out)
    assert "▃▅" in said(out)


def test_a_stopped_run_says_so(write_run: Write) -> None:
    out = console()
    watch(write_run().parent, out)
    assert "0 of 2 runs complete" in " ".join(said(out).split())
    assert "stopped" in said(out)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_is_followed_until_it_ends(
    terminal: bool, write_run: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else adds two rounds and the result, then lets go."""
    monkeypatch.setattr(watching, "POLL", 0.01)
    run, out, looking = write_run(), console(terminal), threading.Event()

    def work() -> None:
        with held(run.parent), held(run):
            looking.wait(5)
            for number, accuracy in ((3, 0.75), (4, 1.0)):
                with (run / "table.csv").open("a") as table:
                    table.write(rows(number, accuracy))
                time.sleep(0.05)
            (run / "result.json").write_text("{}")

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.05)
    looking.set()
    (status,) = watch(run.parent, out)
    worker.join()
    assert (status.done, status.state, status.curve) == (4, "complete", (0.25, 0.5, 0.75, 1.0))
    assert "4/4" in said(out)
    assert ("fedavg, seed 0: round " in said(out)) is not terminal


def test_once_and_json_do_not_wait(write_run: Write, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run()
    with held(run):
        for option in ("--once", "--json"):
            with pytest.raises(SystemExit) as end:
                main(["watch", str(run), option])
            assert not end.value.code
    board, answer = capsys.readouterr().out.rsplit("\n{", 1)
    assert board.count("2/4") == 1
    (entry,) = json.loads("{" + answer)["runs"]
    assert entry["state"] == "running"
    assert entry["round"] == 2
    assert entry["metrics"]["global.accuracy"] == 0.5


@pytest.mark.deploy
def test_a_terminal_gets_a_live_board(tmp_path: Path) -> None:
    """Messages go to a pseudo-terminal, the result to a pipe; the board is drawn while runs go on."""
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    (tmp_path / "e.toml").write_text(ENDLESS)
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "fedcohort", "run", "e.toml"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    runner = subprocess.Popen(
        program, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    seen, board_shown = b"", False
    with contextlib.suppress(OSError):  # the other end is closed
        while piece := os.read(ours, 65536):
            seen += piece
            if not board_shown and all(word in seen for word in (b" of 1 runs complete", b" MB", b"fedavg")):
                board_shown = True
                runner.send_signal(signal.SIGINT)
    os.close(ours)
    out, _ = runner.communicate(timeout=60)
    assert board_shown
    assert runner.returncode == 130
    assert "fedcohort run --resume" in seen.decode()
    assert "[1/1]" not in seen.decode()  # that is for pipes
    assert not out


@pytest.mark.deploy
def test_a_real_run_is_held_while_it_goes_on(tmp_path: Path) -> None:
    """Another process may look at it but not run it; killed, it is free again."""
    experiment = tmp_path / "e.toml"
    experiment.write_text(ENDLESS)
    program = [sys.executable, "-m", "fedcohort"]
    runner = subprocess.Popen([*program, "run", str(experiment), "-o", str(tmp_path / "runs"), "--quiet"])
    home = tmp_path / "runs" / "e-001"
    try:
        deadline = time.monotonic() + 60
        while not list(home.glob("*/state.safetensors")) and time.monotonic() < deadline:
            time.sleep(0.05)
        (status,) = watch(home, console(), once=True)
        assert status.state == "running"
        for directory in (home, status.directory):
            with pytest.raises(UserError, match="is being run by another process"):
                resume(directory, Silent())
    finally:
        runner.kill()
        runner.wait()
    (status,) = watch(home, console(), once=True)
    assert status.state == "stopped"
