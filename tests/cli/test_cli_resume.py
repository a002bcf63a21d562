"""``--resume`` refuses, in one sentence and touching nothing, what it cannot continue to the same end."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli_calls import Cli, contents


@pytest.fixture
def stopped(run_once: Callable[..., Path]) -> Path:
    """A run with two checkpoints and no result, as a kill leaves it after 20 of 21 rounds and more."""
    (run,) = run_once("--set", "rounds=21").glob("fedprox*")
    (run / "result.json").unlink()
    return run


def damage_both(run: Path) -> None:
    for name in ("state.safetensors", "state.previous.safetensors"):
        (run / name).write_bytes((run / name).read_bytes()[:-1])


def edit(run: Path) -> None:
    config = run / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.05", "lr = 0.06"))


def garble(run: Path) -> None:
    (run / "config.toml").write_text("rounds = = 3")


def lose_rows(run: Path) -> None:
    (run / "table.csv").write_text("round,scope,client,group,metric,value\n")


def garble_rows(run: Path) -> None:
    table = run / "table.csv"
    table.write_bytes(b"#" * table.stat().st_size)


def garble_result(run: Path) -> None:
    (run / "result.json").write_text('{"ad": ')


Mistake = Callable[[Path], None]
MISTAKES: dict[Mistake, str] = {
    damage_both: "state.safetensors and state.previous.safetensors cannot be read (damaged)",
    edit: "local.lr is 0.06 here and 0.05 there",
    garble: "not valid TOML",
    lose_rows: "table.csv is shorter than its checkpoint says",
    garble_rows: "table.csv is damaged",
    garble_result: "result.json is damaged (Expecting value",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_run_that_cannot_be_continued(mistake: Mistake, stopped: Path, cli: Cli, here: Path) -> None:
    mistake(stopped)
    before = contents(here)
    for directory in (stopped, stopped.parent):  # the run alone, and the comparison it belongs to
        answer = cli("run", "--resume", str(directory), "--json")
        words = MISTAKES[mistake]
        if mistake is edit and directory != stopped:
            words = "local.lr is 0.05 here and 0.06 there"
        assert words in answer.err
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1
        assert answer.out == ""
        assert answer.code == 2
        assert contents(here) == before


def test_what_can_be_continued_is(stopped: Path, cli: Cli, here: Path) -> None:
    """The damaged current checkpoint gives way to the one before; the result comes again."""
    table, state = (stopped / "table.csv").read_bytes(), (stopped / "state.safetensors").read_bytes()
    (stopped / "state.safetensors").write_bytes(state[:-1])
    (run,) = json.loads(cli("run", "--resume", str(stopped), "--json").out)["runs"]
    assert run["dir"] == str(stopped)
    assert (stopped / "table.csv").read_bytes() == table
    assert (stopped / "state.safetensors").read_bytes() == state
    assert json.loads((stopped / "result.json").read_text()) == run["metrics"]


def test_removed_descriptions_are_written_again(stopped: Path, cli: Cli) -> None:
    config = (stopped / "config.toml").read_bytes()
    for name in ("config.toml", "env.json"):
        (stopped / name).unlink()
    assert cli("run", "--resume", str(stopped.parent), "--json").code == 0
    assert (stopped / "config.toml").read_bytes() == config
    assert "fingerprint" in json.loads((stopped / "env.json").read_text())


def test_very_many_runs_of_a_directory_are_asked_about(run_once: Callable[..., Path], cli: Cli) -> None:
    """It may be somebody else's."""
    home = run_once()
    asked = home / "experiment.toml"
    text = asked.read_text()
    assert "seeds = [" in text
    asked.write_text(re.sub(r"seeds = \[[^]]*\]", f"seeds = [{','.join(map(str, range(1001)))}]", text))
    answer = cli("run", "--resume", str(home))
    assert answer.code == 2
    assert "these settings make up to 1,001 runs: shorten the lists, or add --yes" in answer.err
