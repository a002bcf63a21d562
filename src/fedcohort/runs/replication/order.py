"""In which order runs go, what they cost, and which there is no time for."""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Annotated

from fedcohort.runs.comparison import PlannedRun, StoppedError, Watcher, run_job
from fedcohort.runs.replication.folders import Cell
from fedcohort.runs.workers.schedule import Paces, Schedule, Timed
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.files import fields, read_json
from fedcohort.util.settings import between

COSTS = "seconds_per_round-{}.json"  # of each kind of run of an experiment, in the directory of the runs
PROBE = 3  # rounds, the first of which does not count
Costs = dict[Cell, float]  # seconds a round


class InOrder(Schedule):
    """Runs as they are listed; what would not end before ``deadline`` is not begun."""

    def __init__(
        self,
        jobs: Sequence[PlannedRun],
        costs: Mapping[str, float],
        deadline: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.costs, self.deadline = costs, deadline
        super().__init__(jobs, clock)

    @property
    def waiting(self) -> list[PlannedRun]:
        paces = self._paces()
        for job in list(self.queue):
            if self.clock() + self._left(job, paces) > self.deadline:
                self.queue.remove(job)
                self.given_up.append(job)
        return self.queue

    def _first(self) -> PlannedRun:
        return self.queue[0]

    def _pace(self, job: PlannedRun, paces: Paces) -> float:
        """By runs of the same kind that were seen here or, before there are any, by a probe: it had all cores
        to itself."""
        probed = self.costs.get(job.title, math.nan) * self.size
        seen = self._alike(job)[0] in paces
        return super()._pace(job, paces) if seen or math.isnan(probed) else probed


def probe(job: PlannedRun, watcher: Watcher) -> float:
    """Seconds a round. The rounds are not lost: the run goes on after them."""
    schedule, seen = Schedule([job]), count(1)
    timed = Timed(watcher, schedule)
    timed.enough = lambda: next(seen) >= PROBE
    with suppress(StoppedError):
        run_job(schedule.next(), timed)
    return schedule.begun[job.key].seconds_per_round


def representatives(cells: Iterable[Cell]) -> list[Cell]:
    """The first cell of every method and of all conditions: the others' costs follow from theirs."""
    methods: set[str] = set()
    conditions: set[str] = set()
    chosen = []
    for cell in cells:
        if cell.method not in methods or cell.conditions not in conditions:
            chosen.append(cell)
        methods.add(cell.method)
        conditions.add(cell.conditions)
    return chosen


def completed(known: Costs, cells: Iterable[Cell]) -> Costs:
    """With an estimate for cells that nobody has measured: the mean under the same conditions, times how much
    dearer than the mean the method is elsewhere."""
    out = dict(known)
    for cell in cells if known else ():
        if cell not in known:
            every = list(known.values())
            under = [cost for other, cost in known.items() if other.conditions == cell.conditions] or every
            alike = [cost for other, cost in known.items() if other.method == cell.method] or every
            out[cell] = fmean(under) * fmean(alike) / max(fmean(every), 1e-9)
    return out


def read_costs(path: Path) -> Costs:
    """What probes have found; nothing if there were none."""
    if not path.exists():
        return {}
    table = read_json(path, f"delete {path}")
    named = dict.fromkeys(table if isinstance(table, dict) else (), Annotated[float, between(0, 1e9)])
    told = fields(table, named, path, f"delete {path}")
    return {Cell(*reversed(name.rsplit("@", 1))): seconds for name, seconds in told.items() if "@" in name}


def write_costs(path: Path, costs: Costs) -> None:
    table = {f"{cell.method}@{cell.conditions}": round(seconds, 4) for cell, seconds in costs.items()}
    write_atomically(path, json.dumps(table, indent=1).encode())
