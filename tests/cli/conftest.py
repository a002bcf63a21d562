"""The command line called in this process, in an empty directory with a tiny experiment."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedcohort.cli.app import main
from fedcohort.runs import comparison
from support.cli_calls import EXPERIMENT, Answer, Cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; ``e.toml`` in it is a tiny experiment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    monkeypatch.setenv("FEDCOHORT_OFFLINE", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))  # importing users' modules adds the working directory
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(comparison, "side_by_side", lambda: 1)  # no processes where a machine is slow
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture
def cli(here: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*words: str) -> Answer:
        with pytest.raises(SystemExit) as end:
            main(list(words))
        out, err = capsys.readouterr()
        return Answer(int(end.value.code or 0), out, err)

    return call


@pytest.fixture(scope="session")
def finished() -> dict[tuple[str, ...], Path]:
    return {}


@pytest.fixture
def run_once(
    cli: Cli, here: Path, finished: dict[tuple[str, ...], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """``run e.toml`` for tests that begin where it ends: the first carries it out, the others get a copy."""

    def run(*words: str) -> Path:
        if words in finished:
            shutil.copytree(finished[words], here / "runs")
        else:
            assert cli("run", "e.toml", *words, "--quiet").code == 0
            finished[words] = shutil.copytree(here / "runs", tmp_path_factory.mktemp("finished") / "runs")
        return Path("runs/e-001")

    return run
