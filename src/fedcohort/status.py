"""How far runs are, read from their directories alone, while another process may still be writing them.

Nothing of an experiment is imported or trained, so that looking at a run cannot disturb it.
"""

import csv
import io
import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedcohort.comparison import ASKED
from fedcohort.errors import UserError
from fedcohort.evaluate import Row
from fedcohort.lock import is_held
from fedcohort.record import CONFIG, jsonable

State = Literal["running", "complete", "stopped"]


@dataclass(frozen=True)
class Status:
    """One run, as its directory shows it now."""

    directory: Path
    method: str
    seed: int
    rounds: int  # wanted
    done: int  # completed
    state: State
    trained: int  # updates used so far, over all rounds
    curve: tuple[float, ...]  # global accuracy at each evaluation
    numbers: dict[str, float]  # the last value of each number about the whole federation

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "seed": self.seed,
            "dir": str(self.directory),
            "state": self.state,
            "round": self.done,
            "rounds": self.rounds,
            "metrics": jsonable(self.numbers),
        }


class Follower:
    """Follows one run: each :meth:`look` reads only what was written since the one before."""

    def __init__(self, directory: Path) -> None:
        try:
            asked = tomllib.loads((directory / CONFIG).read_text(encoding="utf-8"))
            method = asked["method"][0]
            self.method: str = method.get("label", method["name"])
            self.seed, self.rounds = int(asked["seeds"][0]), int(asked["rounds"])
        except (OSError, ValueError, LookupError) as error:
            raise UserError(f"{directory / CONFIG} cannot be read ({error}): restore it") from None
        self.directory = directory
        self._forget()

    def _forget(self) -> None:
        self.read = self.done = self.trained = 0
        self.curve: list[float] = []
        self.numbers: dict[str, float] = {}

    def look(self) -> Status:
        complete = (self.directory / "result.json").exists()  # first: nothing is written after it
        running = not complete and is_held(self.directory)
        table = self.directory / "table.csv"
        if table.exists():
            if table.stat().st_size < self.read:  # continued from a checkpoint before what was seen
                self._forget()
            self._take(table)
        state: State = "complete" if complete else "running" if running else "stopped"
        return Status(
            self.directory,
            self.method,
            self.seed,
            self.rounds,
            self.done,
            state,
            self.trained,
            tuple(self.curve),
            dict(self.numbers),
        )

    def _take(self, table: Path) -> None:
        with table.open("rb") as file:
            file.seek(self.read)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]  # the last line may be half written
        self.read += len(whole)
        for line in csv.reader(io.StringIO(whole.decode(), newline="")):
            if len(line) != len(Row._fields) or not line[0].isdigit():
                continue  # the header
            row = Row(int(line[0]), line[1], line[2], line[3], line[4], float(line[5]))
            self.done = row.round
            if row.metric == "trained":
                self.trained += int(row.value)
            elif not row.client:
                self.numbers[row.key] = row.value
                if row.key == "global.accuracy":
                    self.curve.append(row.value)


class Followers:
    """Follows all runs of one directory, also those that start later."""

    def __init__(self, home: Path) -> None:
        if not is_home(home):
            raise UserError(f"{home} is not the directory of a run: it holds neither {ASKED} nor {CONFIG}")
        self.home = home
        self.each: dict[Path, Follower] = {}

    @property
    def planned(self) -> int:
        """How many runs there will be."""
        if not (self.home / ASKED).exists():
            return 1
        try:
            asked = tomllib.loads((self.home / ASKED).read_text(encoding="utf-8"))
            return len(asked["method"]) * len(asked["seeds"])
        except (ValueError, LookupError) as error:
            raise UserError(f"{self.home / ASKED} cannot be read ({error}): restore it") from None

    def look(self) -> list[Status]:
        """Every run that has started, oldest first."""
        for directory in runs_of(self.home):
            if directory not in self.each:
                self.each[directory] = Follower(directory)
        return [follower.look() for follower in self.each.values()]

    def at_work(self, statuses: Sequence[Status]) -> bool:
        """Whether somebody is running what is here."""
        return is_held(self.home) or any(status.state == "running" for status in statuses)


def is_home(directory: Path) -> bool:
    """Whether it is the directory of a run or of a comparison."""
    return (directory / ASKED).exists() or (directory / CONFIG).exists()


def homes_in(directory: Path) -> list[Path]:
    """The runs and comparisons in a directory such as ``runs``, by name; a run or comparison is its own."""
    if is_home(directory):
        return [directory]
    return sorted(path for path in directory.iterdir() if path.is_dir() and is_home(path))


def runs_of(home: Path) -> list[Path]:
    """The run directories of a comparison in the order in which they were started; a run is its own."""
    if (home / CONFIG).exists():
        return [home]
    started = [(_started(path.parent), path.parent) for path in home.glob(f"*/{CONFIG}")]
    return [path for _, path in sorted(started)]


def _started(run: Path) -> str:
    try:
        return str(json.loads((run / "env.json").read_text(encoding="utf-8"))["started"])
    except (OSError, ValueError, LookupError):  # written a moment after the settings
        return "~"
