"""Several methods and seeds side by side: run them, and go on with those that were stopped."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import tomli_w
import torch

from fedcohort.core.engine import Engine
from fedcohort.core.method import Method
from fedcohort.core.round.loop import start
from fedcohort.core.round.misfit import misfit
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.preparation import preparation_of
from fedcohort.data.revealed import Revealed
from fedcohort.runs.about import About
from fedcohort.runs.advice.auto import asks_for_auto
from fedcohort.runs.experiment import Experiment, difference
from fedcohort.runs.longer import adopt, adopted
from fedcohort.runs.outcomes.flat import flat
from fedcohort.runs.outcomes.standings import Outcome, titled
from fedcohort.runs.recorder import CLIENTS, Recorder, check_config, disk_mistakes, new_directory, run_name
from fedcohort.runs.run import Callback, run
from fedcohort.runs.stored import (
    AGAIN,
    ASKED,
    PREPARATION,
    ROSTER,
    RunSettings,
    read_environment,
    read_result,
    runs_of,
    settings_file,
)
from fedcohort.runs.sweep import Point, in_words
from fedcohort.runs.trackers import check_trackers, start_trackers
from fedcohort.runs.workers.processes import ProcessPool
from fedcohort.runs.workers.schedule import Schedule, Timed
from fedcohort.util.checkpoint import CURRENT, write_atomically
from fedcohort.util.cpu import usable_cores
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held
from fedcohort.util.files import damaged, read_toml, refuse_links
from fedcohort.util.user_code import own_code_in, own_mistakes, refuse_unknown_code
from fedcohort.util.words import counted

PAUSE = 10.0  # times what a checkpoint took, before the next: they cost at most a tenth of a run
WORTH_IT = 10.0  # seconds of work that are worth starting processes for
TRUST = "add --trust (in a Flower app, name it in the app's experiment file)"


class StoppedError(Exception):
    """A run was asked to end before its last round; it can be continued."""


class FailedRunsError(UserError):
    """Some runs of several could not go on; the others are complete, with these ``outcomes``."""

    def __init__(self, words: str, outcomes: Sequence[Outcome] = ()) -> None:
        super().__init__(words)
        self.outcomes = list(outcomes)


class Watcher(Protocol):
    """Shows how a comparison goes."""

    def begin(self, method: str, seed: int, rounds: int) -> Callback: ...

    def expect(self, seconds: float) -> None:
        """All runs together will still take so long; NaN: nobody can tell yet."""

    def end(self, outcome: Outcome) -> None: ...

    def fail(self, method: str, seed: int, error: Exception) -> None: ...


@dataclass(frozen=True)
class PlannedRun:
    """One run of a plan."""

    experiment: Experiment  # with the values of this run, where the comparison sweeps some
    method: Method
    seed: int
    directory: Path
    condition: str = ""  # those values as words

    @property
    def title(self) -> str:
        """What a run is called among those of its seed."""
        return titled(self.method.title, self.condition)

    @property
    def key(self) -> tuple[str, int]:
        return self.title, self.seed

    @property
    def table(self) -> dict[str, Any]:
        return self.experiment.table(self.method, self.seed)


@dataclass(frozen=True)
class Plan:
    """An experiment and where each of its runs is kept. A plan is carried out as often as it takes."""

    experiment: Experiment
    home: Path
    jobs: tuple[PlannedRun, ...]

    @property
    def open(self) -> int:
        """How many runs are not complete yet."""
        return sum(read_result(job.directory) is None for job in self.jobs)

    def tracked(self, texts: Sequence[str]) -> "Plan":
        """The same plan with further trackers."""
        jobs = tuple(replace(job, experiment=job.experiment.tracked(texts)) for job in self.jobs)
        return replace(self, experiment=self.experiment.tracked(texts), jobs=jobs)

    def running_on(self, ray: str | None) -> "Plan":
        """The same plan on a Ray cluster, if one is named."""
        return replace(self, experiment=self.experiment.running_on(ray))


def prepare(experiment: Experiment, out: Path) -> Plan:
    """A new ``out/<name>-NNN`` that says what was asked; mistakes show before anything is written."""
    check_trackers(experiment.trackers)
    _ = experiment.means.chosen  # refuses what is not here
    for job in _once(jobs_of(experiment, out)):
        with own_mistakes():
            task = job.experiment.task(job.seed)
            job.experiment.evaluation.check(job.method, task)
            fitted = task.for_method(job.method)
            start(job.method, fitted, fitted.profile(job.method))
    return begin(experiment, out)


def begin(experiment: Experiment, out: Path) -> Plan:
    """The same without looking at the data."""
    home = new_directory(out, experiment.name)
    with disk_mistakes(home):
        write_atomically(home / ASKED, tomli_w.dumps(experiment.table()).encode())
    return _plan(experiment, home)


def reopen(
    directory: Path,
    trust: bool = False,
    trusted: Collection[str] = (),
    agree: Callable[[int], None] = lambda runs: None,
) -> Plan:
    """The plan of a directory that :func:`prepare` made, or of a single run in it.

    Code that its files name is executed only on ``trust``, or if a file of the user, too, names what is in
    ``trusted``. To ``agree`` with so many runs is asked before they are listed.
    """
    path = settings_file(directory)
    table = read_toml(path)
    known = own_code_in(table) if trust else trusted
    refuse_unknown_code(f"to continue {directory}", table, known, TRUST)
    if asks_for_auto(table):
        raise damaged(path, "a run has a method, and auto is none")
    experiment = Experiment.of({**table, "run": {}}, path.stem)  # a stranger's cluster is not for our data
    if path.name == ASKED:
        agree(experiment.count_runs())
        plan = _plan(experiment, directory)
        adopt(plan.home, [(job.directory, job.table) for job in plan.jobs])
        _refuse_changes(plan, str(path), "undo that change")
        return plan
    job = PlannedRun(experiment, experiment.methods[0], experiment.seeds[0], directory)
    return Plan(experiment, directory, (job,))


def extend(plan: Plan, experiment: Experiment) -> Plan:
    """The comparison with further seeds, methods, values or rounds; what it has already is kept."""
    if any(job.directory == plan.home for job in plan.jobs):
        raise UserError(f"{plan.home} is one run of a comparison: name the comparison's directory, above it")
    longer = _plan(replace(experiment, name=plan.experiment.name), plan.home)
    with disk_mistakes(plan.home), held(plan.home):
        runs = [(job.directory, job.table) for job in longer.jobs]
        known = adopted(plan.home, runs)
        _refuse_changes(longer, "what is asked for now", "ask for that, too", known)
        write_atomically(plan.home / ASKED, tomli_w.dumps(longer.experiment.table()).encode())
        adopt(plan.home, runs)
    return longer


def _refuse_changes(plan: Plan, what: str, cure: str, known: Collection[Path] = ()) -> None:
    """Raises UserError if there are runs of other settings, beside those ``known``: new ones would be started
    beside them."""
    asked_for = {job.directory.name for job in plan.jobs}
    for directory in runs_of(plan.home):
        if directory in known or directory.name in asked_for:
            continue
        theirs = RunSettings.read(directory)
        same = [job.table for job in plan.jobs if (job.method.title, job.seed) == (theirs.title, theirs.seed)]
        change: str | None = f"{theirs.title}, seed {theirs.seed}, is missing here"
        if same:
            change = difference(min(same, key=lambda ours: _apart(ours, theirs)), theirs.table)
        anew = "start a new comparison with 'fedcohort run FILE'"
        raise UserError(f"{what} leaves out {directory}, begun before ({change}): {cure}, or {anew}")


def _apart(ours: Mapping[str, Any], theirs: RunSettings) -> int:
    """In how many settings two runs differ."""
    told = flat(ours, Path())
    return sum(told.get(key) != theirs.flat.get(key) for key in {*told, *theirs.flat})


def carry_out(
    plan: Plan, watcher: Watcher, order: Callable[[list[PlannedRun]], Schedule] = Schedule
) -> list[Outcome]:
    """Every run to its end: complete ones are read, stopped ones continued, the others started.

    They go one after the other, each on all cores, until it is seen that all will take long: then they go
    side by side. On a cluster see :mod:`fedcohort.runs.workers.on_ray`. ``order`` says who goes first, and
    may give some up. A run that fails ends no other; its error is raised when they have ended.
    """
    alone = any(job.directory == plan.home for job in plan.jobs)  # a single run holds its directory itself
    refuse_links(plan.home)
    with disk_mistakes(plan.home), nullcontext() if alone else held(plan.home):
        left = [job for job in plan.jobs if read_result(job.directory) is None]
        schedule = order(left)
        timed = Timed(watcher, schedule)
        if plan.experiment.means.ray and left:
            from fedcohort.runs.workers.on_ray import carry_out_on_ray

            carry_out_on_ray(plan, timed)
        elif side_by_side() > 1:
            _until_worth_it(timed)
            if len(schedule.waiting) > 1:
                schedule.size = min(side_by_side(), len(schedule.waiting))
                with ProcessPool(schedule.size) as pool:
                    pool.carry_out(timed)
        while schedule.waiting:
            attempt(schedule.next(), timed)
        given_up = {job.directory for job in schedule.given_up}
        given_up |= {job.directory for job in left if job.key in schedule.failed}
        outcomes = []
        for job in plan.jobs:
            try:
                outcomes += [run_job(job, timed)] if job.directory not in given_up else []
            except UserError as error:  # such as a file of a complete run that is damaged
                timed.fail(*job.key, error)
        _raise_failures(schedule, plan, outcomes)
        return outcomes


def _until_worth_it(timed: Timed) -> None:
    """Runs here, until what is left is worth processes; the one that goes on then is stopped, and waits."""
    schedule = timed.schedule
    timed.enough = lambda: bool(schedule.waiting) and schedule.seconds_left > WORTH_IT
    while len(schedule.waiting) > 1:
        job = schedule.next()
        try:
            attempt(job, timed)
        except StoppedError:
            schedule.again(job)
            break
        if schedule.seconds_left > WORTH_IT:
            break
    timed.enough = lambda: False


def attempt(job: PlannedRun, timed: Timed, engine: Callable[[Task], Engine] | None = None) -> None:
    """One run to its end, or to an error that the others need not know of."""
    try:
        run_job(job, timed, engine)
    except StoppedError:
        raise
    except Exception as error:  # a method may be the user's own code: anything may happen
        timed.fail(*job.key, error)


def _raise_failures(schedule: Schedule, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    """What is a mistake of ours or of the user's own code goes before what is only a sentence."""
    failures = sorted(schedule.failed.items(), key=lambda each: isinstance(each[1], UserError))
    for (title, seed), error in failures:
        if len(plan.jobs) == 1 or not isinstance(error, UserError):
            raise error
        how_many = f"{len(failures)} of {counted(len(plan.jobs), 'run')} failed"
        raise FailedRunsError(f"{how_many}; {title}, seed {seed}: {error}", outcomes) from error


def side_by_side() -> int:
    """How many runs can share this machine."""
    together = hasattr(os, "fork") and not torch.cuda.is_available()  # Windows hands no sockets to a child
    return usable_cores() if together else 1


def compare(experiment: Experiment, out: Path, watcher: Watcher) -> tuple[Path, list[Outcome]]:
    """Every method with every seed, each in its own directory under a new ``out/<name>-NNN``."""
    plan = prepare(experiment, out)
    return plan.home, carry_out(plan, watcher)


def resume(directory: Path, watcher: Watcher) -> list[Outcome]:
    """Finishes the run, or the whole comparison, in ``directory``."""
    return carry_out(reopen(directory), watcher)


def _plan(experiment: Experiment, home: Path) -> Plan:
    return Plan(experiment, home, _once(jobs_of(experiment, home)))


def jobs_of(experiment: Experiment, home: Path) -> list[PlannedRun]:
    """Every method under all conditions with every seed. Those of one federation follow each other: it is
    made once."""
    experiment.count_runs()  # refuses too many, before they are listed
    by_federation: dict[str, list[tuple[Point, Experiment]]] = {}
    for point, variant in experiment.variants():
        by_federation.setdefault(variant.dealing, []).append((point, variant))
    each = [
        (variant.of_one(method), method, in_words(point))
        for point, variant in chain.from_iterable(by_federation.values())
        for method in variant.methods
    ]
    return [
        PlannedRun(alone, method, seed, home / run_name(alone.table(method, seed)), words)
        for seed in experiment.seeds
        for alone, method, words in each
    ]


def _once(jobs: Sequence[PlannedRun]) -> tuple[PlannedRun, ...]:
    """What is the same run under several conditions is the first of them."""
    first: dict[Path, PlannedRun] = {}
    for job in jobs:
        first.setdefault(job.directory, job)
    return tuple(first.values())


def run_job(job: PlannedRun, watcher: Watcher, engine: Callable[[Task], Engine] | None = None) -> Outcome:
    """One run to its end."""
    numbers, table = read_result(job.directory), job.table
    if numbers is not None:
        check_config(job.directory, table)
        if not all((job.directory / name).exists() for name in (ROSTER, PREPARATION)):
            _add_roster(job, table)
        return _outcome(job, numbers)
    task = job.experiment.task(job.seed)
    with own_mistakes():
        recorder = _recorder(job, table, task)
    with disk_mistakes(job.directory):
        job.directory.mkdir(parents=True, exist_ok=True)
        with held(job.directory):
            outcome = _run(job, task, recorder, watcher, engine)
    watcher.end(outcome)
    return outcome


def _outcome(job: PlannedRun, metrics: dict[str, float]) -> Outcome:
    ranked_by = job.experiment.evaluation.ranked_by
    return Outcome(job.method.title, job.seed, job.directory, metrics, job.condition, ranked_by=ranked_by)


def _add_roster(job: PlannedRun, table: dict[str, Any]) -> None:
    """To a complete run of an older fedcohort, if its data are at hand: what looks at it need to know."""
    with suppress(UserError), disk_mistakes(job.directory):
        recorder = _recorder(job, table, job.experiment.task(job.seed))
        if read_environment(job.directory, AGAIN)["fingerprint"] == recorder.fingerprint:
            recorder.describe(only_missing=True)


def _recorder(job: PlannedRun, table: dict[str, Any], task: Task) -> Recorder:
    """With all that a report will need to know, so that it needs neither the data nor the user's code."""
    seen = task if job.method.pooled else task.for_method(job.method)
    profile, told = seen.profile(job.method), task.data.provenance["data"]
    return Recorder(
        job.directory,
        table,
        task.data.fingerprint(),
        read=told.get("read", ""),
        about=About.of(job.method, seen, profile),
        revealed=Revealed.of(seen.data, profile.counts, profile.summaries),
        preparation=preparation_of(task.data, job.experiment.scale),
        pause=PAUSE,
    )


def _run(
    job: PlannedRun, task: Task, recorder: Recorder, watcher: Watcher, engine: Callable[[Task], Engine] | None
) -> Outcome:
    experiment, restored = job.experiment, recorder.open()
    if restored is not None:
        refuse_misfit(restored[0], job, task.for_method(job.method), experiment.rounds)
    progress = watcher.begin(job.title, job.seed, experiment.rounds)
    trackers = start_trackers(experiment.trackers, job.directory, recorder.config, restored)
    callbacks, folder = (recorder, progress, *trackers), job.directory / CLIENTS
    wishes = experiment.rounds, experiment.evaluation
    with recorder.doubting(restored), own_mistakes():
        made = engine or experiment.means.engine_for
        result = run(job.method, task, *wishes, callbacks, restored, made, folder)
    if not result.complete:
        raise StoppedError(f"{job.title} was asked to end after round {result.state.round}")
    recorder.finish(result.metrics)
    return _outcome(job, result.metrics)


def refuse_misfit(state: State, job: PlannedRun, task: Task, rounds: int) -> None:
    """Raises UserError if a checkpoint, whole as it is, is none of this task."""
    best = state.best
    late = "" if 0 <= state.round <= rounds else "the number of its rounds"
    lost = "" if best is None or 0 < best.round <= state.round else "which round was best"
    if wrong := late or lost or misfit(state, job.method, task) or (best and misfit(best, job.method, task)):
        words = f"it is no checkpoint of this run: {wrong} cannot be so"
        raise damaged(job.directory / CURRENT, words, AGAIN)
