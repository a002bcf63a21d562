"""The command line called in this process, in an empty directory with a tiny experiment."""

import sys
from pathlib import Path

import pytest

from fedcohort.cli.app import main
from support.cli_calls import EXPERIMENT, Answer, Cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; ``e.toml`` in it is a tiny experiment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    monkeypatch.setenv("FEDCOHORT_OFFLINE", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))  # importing users' modules adds the working directory
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
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
