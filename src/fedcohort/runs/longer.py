"""Runs that go on for more rounds than were asked for at first.

No method knows how many rounds there will be, so a longer run begins like a shorter one, and its checkpoint
is where it goes on. A run's directory is named after its settings, the number of rounds among them: it moves.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fedcohort.runs.stored import CONFIG, RESULT, TABLE, RunSettings, runs_of
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError

Runs = Sequence[tuple[Path, Mapping[str, Any]]]  # directories, and the settings they are to have


def begins(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Whether a run of these settings is the beginning of ours, or all of it."""
    return theirs["rounds"] <= ours["rounds"] and {**theirs, "rounds": ours["rounds"]} == ours


def adopted(home: Path, runs: Runs) -> dict[Path, Path]:
    """Directories that are the beginning of a run, and where that run is to be."""
    there = {directory for directory, _ in runs}
    found = {}
    for old in runs_of(home):
        if old not in there:
            table = RunSettings.read(old).table
            new = next((new for new, ours in runs if begins(table, ours)), None)
            if new is not None and not new.exists():
                found[old] = new
    return found


def adopt(home: Path, runs: Runs) -> None:
    """Moves them there, no longer complete. Stopped at any step, it goes on when it is called again."""
    settings = dict(runs)
    for old, new in adopted(home, runs).items():
        if (old / RESULT).exists():
            _refuse_what_has_ended(old)
            (old / RESULT).unlink()
        checkpoint.write_atomically(old / CONFIG, tomli_w.dumps(settings[new]).encode())
        old.rename(new)


def _refuse_what_has_ended(directory: Path) -> None:
    """Raises UserError if the checkpoint knows the end of the run, which then cannot be taken back."""
    _, facts = checkpoint.load(directory)
    if facts.get("table_bytes") == (directory / TABLE).stat().st_size:
        raise UserError(f"{directory} was completed by an older fedcohort, and cannot go on: start it again")
