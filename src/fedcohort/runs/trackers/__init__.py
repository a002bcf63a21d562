"""Trackers: what a run measures, told to TensorBoard, MLflow or Weights & Biases as it goes.

A tracker is a class in a file of its own here, found by the file's name; its fields are its settings, and its
library is imported only when it is used. It is told the settings of a run, without the paths of its data, and
the numbers about the whole federation: no client's name and no client's number leaves through a tracker.

A run never fails because of one: a tracker that breaks down is left alone with a warning.
"""

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from fedcohort.core.evaluate import Row
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.data.sources import places_in
from fedcohort.runs.run import Callback
from fedcohort.runs.stored import read_environment
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.files import RESTORE
from fedcohort.util.registry import Registry
from fedcohort.util.settings import build
from fedcohort.util.user_code import in_words


@dataclass(frozen=True)
class RunInfo:
    """What a tracker is told about a run before its first round."""

    directory: Path
    identity: str  # the same when the run is continued, another for every other run
    experiment: str
    name: str  # of the run: the method and the seed
    settings: dict[str, Any]  # flat, like {"local.lr": 0.1}
    rounds: int
    begun: int  # rounds completed before: 0, or those of the checkpoint it continues from


class Log(ABC):
    """One run in a tracker's library."""

    @abstractmethod
    def write(self, number: int, values: dict[str, float]) -> None:
        """The numbers of one round."""

    @abstractmethod
    def end(self, complete: bool) -> None:
        """Nothing comes after this."""


@dataclass(frozen=True)
class Tracker(ABC):
    """The settings of one tracker."""

    name: ClassVar[str]
    library: ClassVar[str]  # what must be installed

    @abstractmethod
    def start(self, info: RunInfo) -> Log:
        """Begins, or continues, the log of a run. Called from several threads."""


TRACKERS: Registry[Tracker] = Registry("tracker", "fedcohort.runs.trackers", "fedcohort.runs.trackers")
C = TypeVar("C", bound=type[Tracker])


def register(cls: C) -> C:
    """Class decorator: registers a tracker under the name of its file."""
    return TRACKERS.register(cls)


def read_trackers(table: Mapping[str, Any]) -> tuple[Tracker, ...]:
    """What ``[track]`` asks for: ``tensorboard = true``, or a table with settings."""
    trackers = []
    for name, settings in table.items():
        if settings is False:
            continue
        if settings is not True and not isinstance(settings, Mapping):
            raise UserError(f"track.{name}: write true, or a table with its settings")
        values = {} if settings is True else settings
        trackers.append(build(TRACKERS.get(name), values, f"track.{name}"))
    return tuple(trackers)


def parse_trackers(texts: Iterable[str]) -> dict[str, Any]:
    """``["tensorboard", "wandb(mode='online')"]`` as the table ``[track]``."""
    return {name: settings or True for text in texts for name, settings in parse(text)}


def write_trackers(trackers: Iterable[Tracker]) -> dict[str, Any]:
    """The table that :func:`read_trackers` turns into these again."""
    return {tracker.name: _changed(tracker) or True for tracker in trackers}


def _changed(tracker: Tracker) -> dict[str, Any]:
    default = type(tracker)()
    return {key: value for key, value in vars(tracker).items() if value != getattr(default, key)}


def check_trackers(trackers: Iterable[Tracker]) -> None:
    """Refuses a tracker whose library is not installed, before anything is written."""
    from importlib.util import find_spec

    for tracker in trackers:
        if find_spec(tracker.library) is None:
            raise UserError(
                f"the tracker '{tracker.name}' needs a library that is not installed: "
                "pip install 'fedcohort[trackers]'"
            )


def start_trackers(
    trackers: Iterable[Tracker], directory: Path, table: Mapping[str, Any], restored: tuple[State, Any] | None
) -> list["Tracking"]:
    """Callbacks that tell these trackers of the run in ``directory``."""
    trackers = tuple(trackers)
    if not trackers:
        return []
    env = read_environment(directory, RESTORE)
    identity = f"{directory.resolve().parent.name}/{directory.name} {env['started']} {env['fingerprint']}"
    method, seed = table["method"][0], table["seeds"][0]
    paths = {f"data.{key}" for key in places_in(table["data"])}
    info = RunInfo(
        directory,
        hashlib.sha256(identity.encode()).hexdigest()[:16],
        table["name"],
        f"{method.get('label', method['name'])}, seed {seed}",
        {key: value for key, value in flat(table) if key not in paths},
        table["rounds"],
        restored[0].round if restored else 0,
    )
    return [Tracking(tracker, info) for tracker in trackers]


class Tracking(Callback):
    """Tells one tracker, for as long as that works."""

    def __init__(self, tracker: Tracker, info: RunInfo) -> None:
        self.tracker, self.complete = tracker, False
        try:
            self.log: Log | None = tracker.start(info)
        except Exception as error:
            raise UserError(f"the tracker '{tracker.name}' cannot be started: {in_words(error)}") from error

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        self._tell(state, rows)
        return False

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        self._tell(state, rows)
        self.complete = True

    def _tell(self, state: State, rows: Sequence[Row]) -> None:
        values = {f"{row.scope}/{row.metric}": row.value for row in rows if row.overall}
        if self.log is not None:
            try:
                self.log.write(state.round, values)
            except Exception as error:  # somebody else's code, perhaps far away: anything may happen
                self._leave(error)

    def close(self, state: State) -> None:
        if self.log is not None:
            try:
                self.log.end(self.complete)
            except Exception as error:
                self._leave(error)

    def _leave(self, error: Exception) -> None:
        self.log = None
        warnings.warn(
            f"the tracker '{self.tracker.name}' is told no more ({in_words(error)}); the run goes on",
            RuntimeWarning,
            stacklevel=3,
        )


def flat(table: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    """Every setting of nested tables with its path, ``("local.lr", 0.1)``."""
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            yield from flat(value, where)
        elif key == "method":
            yield where, ", ".join(entry["name"] for entry in value)
        else:
            yield where, value
