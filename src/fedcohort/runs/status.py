"""How far runs are, read from their directories alone, while another process may still be writing them.

Nothing of an experiment is imported or trained, so that looking at a run cannot disturb it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedcohort.runs.evaluation import on_samples
from fedcohort.runs.outcomes.conditions import place, planned_runs, swept
from fedcohort.runs.outcomes.flat import Settings
from fedcohort.runs.outcomes.over_rounds import ACCURACY
from fedcohort.runs.recorder import jsonable
from fedcohort.runs.stored import (
    AGAIN,
    ASKED,
    CONFIG,
    RESULT,
    TABLE,
    RunSettings,
    parse_rows,
    runs_of,
    settings_file,
)
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import is_held
from fedcohort.util.files import LARGE, read_bytes

RunState = Literal["running", "complete", "stopped", "damaged"]
Stamp = tuple[tuple[int, int, int] | None, ...]  # when files were changed, and their bytes


@dataclass(frozen=True)
class Status:
    """One run, as its directory shows it now."""

    directory: Path
    method: str
    seed: int
    rounds: int  # wanted
    done: int  # completed
    state: RunState
    trained: int  # updates used so far, over all rounds
    curve: tuple[float, ...]  # global accuracy at each evaluation
    numbers: dict[str, float]  # the last value of each number about the whole federation
    trouble: str = ""  # of a damaged one: what is wrong
    settings: Settings = field(default_factory=dict)  # the conditions, where runs differ in any

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "seed": self.seed,
            "settings": self.settings,
            "dir": str(self.directory),
            "state": self.state,
            "round": self.done,
            "rounds": self.rounds,
            "metrics": jsonable(self.numbers),
            **({"trouble": self.trouble} if self.trouble else {}),
        }


class Follower:
    """Follows one run: each :meth:`look` reads only what was written since the one before."""

    def __init__(self, directory: Path) -> None:
        self.asked = RunSettings.read(directory)
        self.method, self.seed, self.rounds = self.asked.title, self.asked.seed, self.asked.rounds
        self.directory = directory
        self._forget()

    def _forget(self) -> None:
        self.read = self.done = self.trained = 0
        self.curve: list[float] = []
        self.numbers: dict[str, float] = {}

    def look(self) -> Status:
        complete = (self.directory / RESULT).exists()  # first: nothing is written after it
        running = not complete and is_held(self.directory)
        table = self.directory / TABLE
        if table.exists():
            if table.stat().st_size < self.read:  # continued from a checkpoint before what was seen
                self._forget()
            self._take(table)
        state: RunState = "complete" if complete else "running" if running else "stopped"
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
        new = read_bytes(table, LARGE, AGAIN, start=self.read)
        whole = new[: new.rfind(b"\n") + 1]  # the last line may be half written
        lines = whole if self.read else whole.partition(b"\n")[2]  # without the header
        rows = parse_rows(lines, table)
        self.read += len(whole)
        for row in rows:
            self.done = row.round
            if row.metric == "trained":
                self.trained += int(row.value)
            elif row.overall:
                self.numbers[row.key] = row.value
                if row.key == on_samples(self.asked.on, ACCURACY):
                    self.curve.append(row.value)


class Followers:
    """Follows all runs of one directory, also those that start later."""

    def __init__(self, home: Path) -> None:
        self.compared = settings_file(home).name == ASKED
        self.home, self.swept = home, swept(home)
        self.each: dict[Path, Follower] = {}
        self.damaged: dict[Path, tuple[Stamp, Status]] = {}  # a large one takes long to read each time

    @property
    def planned(self) -> int:
        """How many runs there will be."""
        return planned_runs(self.home) if self.compared else 1

    def look(self) -> list[Status]:
        """Every run that has started, oldest first; one that is damaged hides no other."""
        found = [self._look_at(directory) for directory in runs_of(self.home)]
        known = [status.directory for status in found if status.state != "damaged"]
        placed = dict(zip(known, place([self.each[run].asked for run in known], self.swept), strict=True))
        return [
            replace(status, method=own.method, settings=own.settings)
            if (own := placed.get(status.directory))
            else status
            for status in found
        ]

    def _look_at(self, directory: Path) -> Status:
        stamp = _stamp(directory)
        known, status = self.damaged.get(directory, (None, None))
        if status is not None and known == stamp:
            return status
        try:
            if directory not in self.each:
                self.each[directory] = Follower(directory)
            return self.each[directory].look()
        except (UserError, OSError) as error:
            status = Status(directory, directory.name, 0, 0, 0, "damaged", 0, (), {}, str(error))
            self.damaged[directory] = stamp, status
            return status

    def at_work(self, statuses: Sequence[Status]) -> bool:
        """Whether somebody is running what is here."""
        return is_held(self.home) or any(status.state == "running" for status in statuses)


def _stamp(directory: Path) -> Stamp:
    """Changes with the files that a look reads."""
    found: list[tuple[int, int, int] | None] = []
    for name in (CONFIG, TABLE):
        try:
            about = (directory / name).stat()
            found.append((about.st_mtime_ns, about.st_ctime_ns, about.st_size))
        except OSError:
            found.append(None)
    return tuple(found)
