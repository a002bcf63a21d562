"""One table at one scale: its runs, those that are done, and the rest carried out."""

import math
import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path

from fedcohort.runs.comparison import Plan, PlannedRun, Watcher, carry_out, jobs_of
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.overrides import override_all
from fedcohort.runs.recorder import as_file_name, out_mistakes
from fedcohort.runs.replication.folders import EXPERIMENT, RESULTS, Cell, Claim, Folder, Study
from fedcohort.runs.replication.order import (
    COSTS,
    Costs,
    InOrder,
    completed,
    probe,
    read_costs,
    representatives,
    write_costs,
)
from fedcohort.runs.replication.results import (
    FIRST,
    ResultRow,
    add_results,
    read_results,
    result_of,
    settings_hash,
)
from fedcohort.runs.replication.study import run_study, study_results
from fedcohort.runs.run import Callback
from fedcohort.runs.stored import read_result
from fedcohort.stats.paired import SEEDS
from fedcohort.util.errors import UserError
from fedcohort.util.files import read_toml
from fedcohort.util.user_code import refuse_unknown_code

BETWEEN = r",(?![^(]*\))"  # a comma, but none between a method's settings
Key = tuple[Cell, int]  # a cell and a seed: one run


@dataclass(frozen=True)
class Replication:
    """A table at a scale, with as many seeds as are asked for."""

    folder: Folder
    scale: str
    out: Path
    seeds: int | None = None  # None: those of the experiment file
    cells: str = "*"  # those that are to be run
    claimed: bool = False  # of these, only what a claim needs

    @property
    def has_scale(self) -> bool:
        return self.scale in self.folder.scales

    def check(self) -> None:
        """Refuses a scale that the table does not have, and cells that it lacks."""
        _ = self.folder.scale(self.scale), self.asked

    @property
    def of_claims(self) -> "Replication":
        """What goes first where there are several tables."""
        return replace(self, claimed=True)

    @property
    def home(self) -> Path:
        """One for all tables of a paper: what two of them need is run once."""
        return self.out / "replicate" / f"{self.folder.paper}-{self.scale}"

    @property
    def path(self) -> Path:
        """Where results are kept; those of a smoke test are none."""
        return (self.home / self.folder.path.name if self.scale == "smoke" else self.folder.path) / RESULTS

    @property
    def studies(self) -> Path:
        """Where a study keeps its rows: what is committed there is not computed again."""
        return self.path.parent if self.scale == "smoke" else self.folder.root / "studies"

    @cached_property
    def experiment(self) -> Experiment:
        path = self.folder.path / EXPERIMENT
        table = read_toml(path)
        override_all(table, self.folder.scale(self.scale).set)
        if not self.folder.trusted:
            refuse_unknown_code(f"to make {self.folder.name} again", table, ())
        asked = Experiment.of({**table, "run": {}}, path.stem)  # it does not choose on which cluster
        if self.seeds is None:
            return asked
        more = range(max(asked.seeds) + 1, max(asked.seeds) + 1 + self.seeds)
        return replace(asked, seeds=(*asked.seeds, *more)[: self.seeds])

    @cached_property
    def asked(self) -> list[Cell]:
        """The cells that are to be run; of a smoke test every method and all conditions once."""
        every = self.folder.cells
        every = representatives(every) if self.scale == "smoke" else every
        asked = chosen(every, self.cells, self.folder.paper)
        return [cell for cell in asked if not self.claimed or cell in self.folder.decisive]

    @cached_property
    def made(self) -> dict[Key, PlannedRun]:
        """All runs of the experiment file."""
        return {(_cell(job), job.seed): job for job in jobs_of(self.experiment, self.home)}

    @cached_property
    def jobs(self) -> dict[Key, PlannedRun]:
        """A run for each cell and seed that are asked for."""
        for cell in self.asked:
            if (cell, self.experiment.seeds[0]) not in self.made:
                raise UserError(
                    f"{self.folder.path / EXPERIMENT} does not make {cell.short(self.folder.paper)}, which "
                    "expected.csv has: add it to the one, or take its metric out of the other"
                )
        return {(cell, seed): self.made[cell, seed] for seed in self.experiment.seeds for cell in self.asked}

    @property
    def data(self) -> list[str]:
        """Which data sets are read."""
        if self.folder.study is not None:
            return [self.folder.study.data]
        told = (job.experiment.data for job in self.made.values())
        return sorted({str(data.get("path", data["source"])) for data in told})

    def current(self, results: Iterable[ResultRow]) -> list[ResultRow]:
        """Those that are of the experiment file, or of the study's rows, as they are now."""
        if self.folder.study is None:
            return [each for each in results if self._is_current(each)]
        if not (self.studies / self.folder.study.file).exists():  # the folder alone was copied
            return list(results)
        known = {each.config for each in self._studied(self.folder.study)}
        return [each for each in results if each.config in known]

    def _studied(self, study: Study) -> list[ResultRow]:
        return study_results(self.folder, study, self.scale, self.studies)

    def _is_current(self, result: ResultRow) -> bool:
        job = self.made.get((result.cell, self.experiment.seeds[0]))
        table = job.experiment.table(job.method, result.seed) if job else None
        return table is not None and settings_hash(table) == result.config

    @property
    def results(self) -> list[ResultRow]:
        """What is known at this scale."""
        return self.current(each for each in read_results(self.path) if each.about["scale"] == self.scale)

    @property
    def open(self) -> dict[Key, PlannedRun]:
        """The runs that are not done."""
        if self.folder.study is not None:
            return {}
        done = {(each.cell, each.seed) for each in self.results}
        return {key: job for key, job in self.jobs.items() if key not in done}

    @property
    def _costs(self) -> Path:
        """Tables of the same experiment share what was measured."""
        return self.home / COSTS.format(as_file_name(self.experiment.name))

    @property
    def costs(self) -> Costs:
        """Seconds a round of every cell, by probes on this machine; those of results may be another's."""
        told = read_costs(self._costs)
        return completed({cell: told[cell] for cell in self.folder.cells if cell in told}, self.folder.cells)

    @property
    def seconds_left(self) -> float:
        """NaN until anything is known."""
        if not (left := self.open):
            return 0.0
        if not (costs := self.costs):
            return math.nan
        return sum(costs[cell] * job.experiment.rounds for (cell, _), job in left.items())

    def probe(self, watcher: Watcher, deadline: float = math.inf) -> None:
        """Measures what must be known to tell the cost of all that is left; those rounds are not lost. What
        cannot be measured is told when all else is."""
        if not self.open:
            return
        with out_mistakes(self.out):
            self.home.mkdir(parents=True, exist_ok=True)
        first: dict[Cell, PlannedRun] = {}
        for (cell, _), job in self.open.items():
            first.setdefault(cell, job)
        known, failed = read_costs(self._costs), list[Exception]()
        for cell in representatives(first):
            if cell not in known and time.monotonic() < deadline:
                try:
                    seconds = probe(first[cell], Recording(self, watcher))
                except Exception as error:  # a method may be the user's own code
                    failed.append(error)
                    continue
                if not math.isnan(seconds):  # else the same run was made under other conditions
                    write_costs(self._costs, read_costs(self._costs) | {cell: seconds})
        if failed:
            raise failed[0]

    def run(self, watcher: Watcher, seconds: float = math.inf) -> None:
        """What is missing, in order, as far as there is time."""
        deadline = time.monotonic() + seconds
        if (study := self.folder.study) is not None:
            if not {*self.folder.cells} <= {each.cell for each in self._studied(study)}:
                run_study(self.folder, study, self.scale, self.studies)
            have = {each.config for each in self.results}
            add_results(self.path, [each for each in self._studied(study) if each.config not in have])
            return
        self._take_over()
        if not self.open:
            return
        with suppress(Exception):  # whoever carries that out is told, and no other has to wait for it
            self.probe(watcher, deadline)
        costs, left = self.costs, self.open
        once = {left[key].directory: left[key] for key in self._in_order(left, costs)}
        known = {job.title: costs[cell] for (cell, _), job in left.items() if cell in costs}
        order: Callable[[list[PlannedRun]], InOrder] = partial(InOrder, costs=known, deadline=deadline)
        plan = Plan(self.experiment, self.home, tuple(once.values()))
        carry_out(plan, Recording(self, watcher), order)

    def _in_order(self, left: dict[Key, PlannedRun], costs: Costs) -> list[Key]:
        """One claim after the other, the cheapest first, with as many seeds as a verdict needs; then other
        seeds of claims, then what no claim needs."""
        seeds = self.experiment.seeds
        due = {key: costs.get(key[0], 0.0) * job.experiment.rounds for key, job in left.items()}

        def cost(claim: Claim) -> float:
            return sum(due.get((cell, seed), 0.0) for cell in claim.cells for seed in seeds[:SEEDS])

        claims = sorted(self.folder.claims, key=cost)

        def place(key: Key) -> tuple[bool, bool, list[int], int, float]:
            cell, turn = key[0], seeds.index(key[1])
            asking = [number for number, claim in enumerate(claims) if cell in claim.cells]
            return not asking, turn >= SEEDS, asking[:1], turn, costs.get(cell, 0.0)

        return sorted(left, key=place)

    def _take_over(self) -> None:
        """Runs that were complete when somebody was stopped before it was written down, or that another table
        of the paper has made: they are in a directory, or in its results.csv."""
        elsewhere, found = self._elsewhere(), []
        for key, job in self.open.items():
            if (ended := self._ended(key)) is not None:
                found.append(ended)
            elif same := elsewhere.get(settings_hash(job.table)):
                own = dict(zip(FIRST, map(str, (*key[0], self.scale, key[1])), strict=True))
                values = {metric: same.values[metric] for metric in self.folder.metrics}
                found.append(ResultRow(same.about | own, values))
        if found:
            add_results(self.path, found)

    def _ended(self, key: Key) -> ResultRow | None:
        """What its directory tells, if it is complete; whoever carries it out says what is wrong with it."""
        with suppress(UserError):
            if read_result(self.jobs[key].directory) is not None:
                return self.result(key)
        return None

    def _elsewhere(self) -> dict[str, ResultRow]:
        """What the paper's other tables have of runs, by their settings, if it is all that is kept here. What
        is empty there was measured, too: a target may never be reached."""
        every: list[ResultRow] = []
        for path in self.folder.path.parent.glob(f"*/{RESULTS}"):
            with suppress(UserError):  # that table's own, and no reason not to make this one
                every += read_results(path) if path != self.path else ()
        return {each.config: each for each in every if {*self.folder.metrics} <= each.values.keys()}

    def result(self, key: Key) -> ResultRow:
        return result_of(self.folder, self.scale, key[0], self.jobs[key])


class Recording:
    """A watcher that also writes down each run that is complete."""

    def __init__(self, replication: Replication, watcher: Watcher) -> None:
        self.replication, self.watcher = replication, watcher
        self.jobs = replication.open

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        return self.watcher.begin(method, seed, rounds)

    def expect(self, seconds: float) -> None:
        self.watcher.expect(seconds)

    def end(self, outcome: Outcome) -> None:
        ended = [key for key, job in self.jobs.items() if job.directory == outcome.directory]
        try:
            add_results(self.replication.path, [self.replication.result(key) for key in ended])
        except (UserError, OSError) as error:  # the run is complete: the next command takes it over
            warnings.warn(f"a result is not written down yet: {error}", RuntimeWarning, stacklevel=1)
        self.watcher.end(outcome)

    def fail(self, method: str, seed: int, error: Exception) -> None:
        self.watcher.fail(method, seed, error)


def chosen(cells: Sequence[Cell], text: str, paper: str) -> list[Cell]:
    """Those that a pattern of ``--cells`` fits: ``fedavg``, ``fed*@fmnist`` or ``*@alpha=0.05``."""
    wanted: set[Cell] = set()
    for pattern in map(str.strip, re.split(BETWEEN, text)):
        method, _, conditions = pattern.rpartition("@") if "@" in pattern else (pattern, "", "")
        found = {cell for cell in cells if _fits(cell, method or "*", conditions or "*", paper)}
        if not found or not (method or conditions):
            names = (cell.words(paper) for cell in cells)
            methods, under = (", ".join(dict.fromkeys(each)) for each in zip(*names, strict=True))
            known = f"methods: {methods}; conditions: {under}"
            raise UserError(f"--cells {pattern}: there is no such cell; {known}")
        wanted |= found
    return [cell for cell in cells if cell in wanted]


def _fits(cell: Cell, method: str, conditions: str, paper: str) -> bool:
    """The end of a name of conditions is enough."""
    name, under = cell.words(paper)
    ends = (conditions, f"*/{conditions}")
    return fnmatchcase(name, method) and any(fnmatchcase(under, each) for each in ends)


def _cell(job: PlannedRun) -> Cell:
    """Of several swept settings each is a word more."""
    return Cell(job.condition.removeprefix("conditions=").replace(", ", "/"), job.method.title)


def stale(folder: Folder) -> list[str]:
    """The rows of results.csv that are not of the experiment file as it is now, as words."""
    left = read_results(folder.path / RESULTS)
    for scale in folder.scales:
        own = [each for each in left if each.about["scale"] == scale]
        good = {*map(id, Replication(folder, scale, Path()).current(own) if own else ())}
        left = [each for each in left if id(each) not in good]
    return [f"{each.cell.short(folder.paper)}, {each.about['scale']}, seed {each.seed}" for each in left]
