"""Which run goes next, and how long all of them will still take.

The longest go first, so that nobody is left alone with one at the end. How long a run takes is seen from runs
of the same method with the same swept values or, before there are any, with others. What nobody has seen goes
before all others.
"""

import heapq
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedcohort.core.evaluate import Row
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.runs.run import Callback
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import in_words

if TYPE_CHECKING:
    from fedcohort.runs.comparison import PlannedRun, Watcher
    from fedcohort.runs.outcomes.standings import Outcome

Key = tuple[str, int]  # title and seed of a run
Paces = Mapping[tuple[str, ...], float]  # seconds of a round, by what runs have in common


@dataclass
class Pace:
    """How fast a run goes, from what was seen of it."""

    clock: Callable[[], float] = time.monotonic
    seen: list[tuple[float, int, int]] = field(default_factory=list)  # time, rounds, clients: first and last

    def add(self, done: int, trained: int) -> None:
        self.seen[1:] = [(self.clock(), done, trained)]

    @property
    def clients_per_second(self) -> float:
        """NaN until it is known."""
        seconds, done, clients = self._between()
        return clients / seconds if done > 0 and seconds > 0 else math.nan

    @property
    def seconds_per_round(self) -> float:
        """NaN until it is known."""
        seconds, done, _ = self._between()
        return seconds / done if done > 0 else math.nan

    def seconds_left(self, rounds: int) -> float:
        """NaN until it is known."""
        return (rounds - self.seen[-1][1]) * self.seconds_per_round if self.seen else math.nan

    def _between(self) -> tuple[float, int, int]:
        if len(self.seen) < 2:
            return 0.0, 0, 0
        (then, before, few), (now, after, many) = self.seen
        return now - then, after - before, many - few


@dataclass
class _Begun:
    """What is known of a run that was begun."""

    job: "PlannedRun"
    since: float
    pace: Pace
    done: int = 0  # rounds

    @property
    def seconds_per_round(self) -> float:
        """NaN until it is known; of a run of a single round it is only at its end."""
        known, rounds = self.pace.seconds_per_round, self.job.experiment.rounds
        if self.done == rounds == 1:
            return self.pace.seen[-1][0] - self.since
        return known


class Schedule:
    """The runs of a comparison that are not complete, ``size`` of them at a time."""

    def __init__(self, jobs: Sequence["PlannedRun"], clock: Callable[[], float] = time.monotonic) -> None:
        self.queue, self.clock, self.size = list(jobs), clock, 1
        self.several = len(jobs) > 1
        self.begun: dict[Key, _Begun] = {}
        self.given_up: list[PlannedRun] = []  # those that nobody is to begin any more
        self.failed: dict[Key, Exception] = {}  # what ended a run before its last round

    @property
    def waiting(self) -> "list[PlannedRun]":
        """Those that are still to be begun."""
        return self.queue

    def next(self) -> "PlannedRun":
        """The one that is to go now; who asks has seen that some wait, however long ago that was."""
        chosen = self._first()
        self.queue.remove(chosen)
        known = self.begun.get(chosen.key)
        done = known.done if known else 0
        self.begun[chosen.key] = _Begun(chosen, self.clock(), Pace(self.clock), done)
        return chosen

    def _first(self) -> "PlannedRun":
        """Of those that wait one of a method or of a kind that nobody has seen, or else the longest."""
        seen = {alike for begun in self.begun.values() for alike in self._alike(begun.job)}
        paces = self._paces()

        def urgency(job: "PlannedRun") -> tuple[list[bool], float]:
            return [alike not in seen for alike in reversed(self._alike(job))], self._left(job, paces)

        return max(self.queue, key=urgency)

    def again(self, job: "PlannedRun") -> None:
        """Somebody else has to go on with it."""
        self.queue.insert(0, job)

    def fail(self, run: Key, error: Exception) -> None:
        """It cannot go on. If others do, that is told at once; what ends several, only of the first."""
        if self.several and str(error) not in map(str, self.failed.values()):
            told = error if isinstance(error, UserError) else in_words(error)
            warnings.warn(f"{run[0]}, seed {run[1]}, failed: {told}", RuntimeWarning, stacklevel=2)
        self.failed[run] = error

    def saw(self, run: Key, done: int) -> None:
        """It has done so many of its rounds."""
        self.begun[run].done = done
        self.begun[run].pace.add(done, 0)

    @property
    def seconds_left(self) -> float:
        """Until all are complete; NaN until anything is known."""
        if not (paces := self._paces()):
            return math.nan
        waiting = {job.key: self._left(job, paces) for job in self.waiting}
        over = {*waiting, *self.failed}
        going = [begun.job for run, begun in self.begun.items() if run not in over]
        at_work = sorted(self._left(job, paces) for job in going)
        ends = ([0.0] * self.size + at_work)[-self.size :]  # those before have ended
        for seconds in sorted(waiting.values(), reverse=True):
            heapq.heapreplace(ends, ends[0] + seconds)
        return max(ends)

    def _left(self, job: "PlannedRun", paces: Paces) -> float:
        """What a run will still take; 0 where nobody can tell."""
        done = self.begun[job.key].done if job.key in self.begun else 0
        return (job.experiment.rounds - done) * self._pace(job, paces)

    def _pace(self, job: "PlannedRun", paces: Paces) -> float:
        return next((paces[alike] for alike in self._alike(job) if alike in paces), 0.0)

    def _alike(self, job: "PlannedRun") -> tuple[tuple[str, ...], ...]:
        """By whose runs its pace is judged: those of its kind, before there are any its method's, or all."""
        return ("kind", job.title), ("method", job.method.title), ()

    def _paces(self) -> Paces:
        """Of what was seen so far; each run is looked at once, however many there are."""
        known: dict[tuple[str, ...], list[float]] = {}
        for begun in self.begun.values():
            if not math.isnan(seconds := begun.seconds_per_round):
                for alike in self._alike(begun.job):
                    known.setdefault(alike, []).append(seconds)
        return {alike: sum(several) / len(several) for alike, several in known.items()}


class Timed:
    """A watcher that passes on what it is told, and how long all runs will still take.

    After every round it asks ``enough`` whether the run is to stop there, for somebody else to go on with.
    """

    def __init__(self, watcher: "Watcher", schedule: Schedule) -> None:
        self.watcher, self.schedule = watcher, schedule
        self.begun: dict[Key, Callback] = {}
        self.enough: Callable[[], bool] = lambda: False

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        run = method, seed
        if run not in self.begun:  # else it only goes on elsewhere
            self.begun[run] = self.watcher.begin(method, seed, rounds)
        return _Rounds(self, run, self.begun[run])

    def end(self, outcome: "Outcome") -> None:
        self.expect(self.schedule.seconds_left)
        self.watcher.end(outcome)

    def fail(self, method: str, seed: int, error: Exception) -> None:
        self.schedule.fail((method, seed), error)
        self.watcher.fail(method, seed, error)

    def expect(self, seconds: float) -> None:
        self.watcher.expect(seconds)


class _Rounds(Callback):
    """The callback of one run."""

    def __init__(self, timed: Timed, run: Key, then: Callback) -> None:
        self.timed, self.run, self.then = timed, run, then

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        self.timed.schedule.saw(self.run, state.round)
        self.timed.expect(self.timed.schedule.seconds_left)
        return self.then.after_round(state, report, rows) or self.timed.enough()

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        self.then.conclude(state, rows)

    def close(self, state: State) -> None:
        self.then.close(state)
