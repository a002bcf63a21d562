"""Progress of runs: a live board on a terminal, plain lines in logs and pipes, nothing when asked."""

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

from rich.live import Live
from rich.table import Table

from fedcohort.cli.board import RunLine, board, duration, percent
from fedcohort.cli.tables import messages
from fedcohort.core.evaluate import VALIDATION, Row
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.runs.outcomes.over_rounds import ACCURACY
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.run import Callback, final_metrics
from fedcohort.runs.workers.schedule import Pace
from fedcohort.util.words import counted

EVERY = 30.0  # seconds between the lines of one run


class Silent:
    """Shows nothing."""

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        return _LineUpdate(RunLine(method, seed, rounds))

    def expect(self, seconds: float) -> None:
        pass

    def end(self, outcome: Outcome) -> None:
        pass

    def fail(self, method: str, seed: int, error: Exception) -> None:
        """What ended it is told by a warning."""

    def stop(self) -> None:
        pass


class _Expects(Silent):
    """Remembers how long all runs together will still take."""

    left = math.nan

    def expect(self, seconds: float) -> None:
        self.left = seconds

    @property
    def in_all(self) -> str:
        """With a comma before it; empty while nobody can tell."""
        return "" if math.isnan(self.left) else f", about {duration(self.left)} left in all"


class Lines(_Expects):
    """Plain lines: when a run starts, every half minute, and when it ends; of how many, where that is
    known."""

    def __init__(self, runs: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.of, self.clock, self.begun = "" if runs is None else f"/{runs}", clock, 0
        self.lock = threading.Lock()  # several runs go on at a time
        self.started: dict[tuple[str, int], float] = {}
        self.printed: dict[tuple[str, int], float] = {}

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        with self.lock:
            self.started[method, seed] = self.printed[method, seed] = self.clock()
            self.begun += 1
            self._say(f"[{self.begun}{self.of}] {method}, seed {seed}: {counted(rounds, 'round')} ...")
        return _LineUpdate(RunLine(method, seed, rounds, pace=Pace(self.clock)), self._now_and_then)

    def _now_and_then(self, line: RunLine) -> None:
        run, now = (line.method, line.seed), self.clock()
        if now - self.printed[run] >= EVERY and line.done < line.rounds:
            self.printed[run] = now
            self._say(f"    {line}{self.in_all}, {megabytes()}")

    def end(self, outcome: Outcome) -> None:
        accuracy = percent(outcome.metrics["global.accuracy"])
        seconds = self.clock() - self.started[outcome.title, outcome.seed]
        run = f"{outcome.title}, seed {outcome.seed}"
        self._say(f"    {run}: global accuracy {accuracy} after {seconds:.1f} s{self.in_all}")

    def _say(self, line: str) -> None:
        """A line is a line, however long: somebody may search a log for it."""
        messages.print(line, markup=False, soft_wrap=True)


class LiveBoard(_Expects):
    """A live board of the runs that go on, gone when they end."""

    def __init__(self, runs: int | None) -> None:
        self.of, self.ended = "" if runs is None else f" of {runs}", 0
        self.lines: dict[tuple[str, int], RunLine] = {}
        self.live = Live(console=messages, transient=True, refresh_per_second=4, get_renderable=self._board)
        self.live.start()

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        line = self.lines[method, seed] = RunLine(method, seed, rounds)
        return _LineUpdate(line)

    def end(self, outcome: Outcome) -> None:
        self.lines.pop((outcome.title, outcome.seed), None)
        self.ended += 1

    def fail(self, method: str, seed: int, error: Exception) -> None:
        self.lines.pop((method, seed), None)

    def stop(self) -> None:
        self.live.stop()

    def _board(self) -> Table:
        title = f"{self.ended}{self.of} runs complete{self.in_all}, {megabytes()}"
        return board(list(self.lines.values()), title)


def watcher_of(runs: int | None, silent: bool) -> Silent:
    """Shows how so many runs go; None: nobody knows how many there will be."""
    if silent:
        return Silent()
    return LiveBoard(runs) if messages.is_terminal else Lines(runs)


class _LineUpdate(Callback):
    """Keeps the line of its run up to date."""

    def __init__(self, line: RunLine, then: Callable[[RunLine], None] | None = None) -> None:
        self.line, self.then, self.trained = line, then, 0

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        self.trained += len(report.answered)
        self.line.done = state.round
        self.conclude(state, rows)
        self.line.pace.add(state.round, self.trained)
        if self.then is not None:
            self.then(self.line)
        return False

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        numbers = final_metrics(rows)
        if "groups" in numbers:  # the round was evaluated
            looked_at = numbers.get(f"{VALIDATION}{ACCURACY}", numbers.get(ACCURACY, math.nan))
            self.line.curve = [*self.line.curve, looked_at]
            self.line.groups = numbers["groups"]

    def close(self, state: State) -> None:
        """Somebody else may go on with it later: the time until then is not of its rounds."""
        self.line.pace.seen.clear()


def megabytes() -> str:
    """Memory of this process and its children: now where the system tells, else the most so far."""
    try:
        children = [path.read_text().split() for path in Path("/proc/self/task").glob("*/children")]
        pages = sum(_pages(process) for process in ["self", *chain(*children)])
        used = pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        try:
            import resource
        except ImportError:  # Windows
            return "memory unknown"
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return f"{used / 1e6:,.0f} MB"


def _pages(process: str) -> int:
    """Resident pages that are the process's own; 0 if it has ended."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text().split()
    except FileNotFoundError:
        if process == "self":
            raise
        return 0
    return int(resident) - (0 if process == "self" else int(shared))
