"""Several methods and seeds side by side: run them, and go on with those that were stopped."""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import tomli_w
import torch

from fedcohort.core.engine import Engine
from fedcohort.core.method import Method
from fedcohort.core.round.loop import start
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.revealed import Revealed
from fedcohort.runs.about import About
from fedcohort.runs.experiment import Experiment, difference
from fedcohort.runs.processes import ProcessPool
from fedcohort.runs.recorder import (
    CLIENTS,
    Recorder,
    check_config,
    disk_mistakes,
    new_directory,
    run_name,
)
from fedcohort.runs.run import Callback, run
from fedcohort.runs.schedule import Schedule, Timed
from fedcohort.runs.standings import Outcome
from fedcohort.runs.stored import (
    AGAIN,
    ASKED,
    ROSTER,
    Asked,
    read_environment,
    read_result,
    runs_of,
    settings_file,
)
from fedcohort.runs.trackers import check_trackers, start_trackers
from fedcohort.util.checkpoint import CURRENT, write_atomically
from fedcohort.util.cpu import usable_cores
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held
from fedcohort.util.files import damaged, read_toml, refuse_links
from fedcohort.util.user_code import own_code_in, own_mistakes, refuse_unknown_code

WORTH_IT = 10.0  # seconds of work that are worth starting processes for


class StoppedError(Exception):
    """A run was asked to end before its last round; it can be continued."""


class Watcher(Protocol):
    """Shows how a comparison goes."""

    def begin(self, method: str, seed: int, rounds: int) -> Callback: ...

    def expect(self, seconds: float) -> None:
        """All runs together will still take so long; NaN: nobody can tell yet."""

    def end(self, outcome: Outcome) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class Job:
    """One run of a plan."""

    method: Method
    seed: int
    directory: Path


@dataclass(frozen=True)
class Plan:
    """An experiment and where each of its runs is kept. A plan is carried out as often as it takes."""

    experiment: Experiment
    home: Path
    jobs: tuple[Job, ...]

    @property
    def open(self) -> int:
        """How many runs are not complete yet."""
        return sum(read_result(job.directory) is None for job in self.jobs)

    def tracked(self, texts: Sequence[str]) -> "Plan":
        """The same plan with further trackers."""
        return replace(self, experiment=self.experiment.tracked(texts))

    def running_on(self, ray: str | None) -> "Plan":
        """The same plan on a Ray cluster, if one is named."""
        return replace(self, experiment=self.experiment.running_on(ray))


def prepare(experiment: Experiment, out: Path) -> Plan:
    """A new ``out/<name>-NNN`` that says what was asked; mistakes show before anything is written."""
    check_trackers(experiment.trackers)
    for seed in experiment.seeds:
        task = experiment.task(seed)
        for method in experiment.methods:
            with own_mistakes():
                fitted = task.for_method(method)
                start(method, fitted, fitted.profile(method))
    return begin(experiment, out)


def begin(experiment: Experiment, out: Path) -> Plan:
    """The same without looking at the data."""
    home = new_directory(out, experiment.name)
    with disk_mistakes(home):
        write_atomically(home / ASKED, tomli_w.dumps(experiment.table()).encode())
    return _plan(experiment, home)


def reopen(directory: Path, trust: bool = False, trusted: Collection[str] = ()) -> Plan:
    """The plan of a directory that :func:`prepare` made, or of a single run in it.

    Code that its files name is executed only on ``trust``, or if a file of the user, too, names what is in
    ``trusted``.
    """
    path = settings_file(directory)
    table = read_toml(path)
    refuse_unknown_code(directory, table, own_code_in(table) if trust else trusted)
    experiment = Experiment.of({**table, "run": {}}, path.stem)  # a stranger's cluster is not for our data
    if path.name == ASKED:
        plan = _plan(experiment, directory)
        _refuse_changes(plan)
        return plan
    return Plan(experiment, directory, (Job(experiment.methods[0], experiment.seeds[0], directory),))


def _refuse_changes(plan: Plan) -> None:
    """Raises UserError if there are runs of other settings: new ones would be started beside them."""
    for directory in runs_of(plan.home):
        if directory.name in {job.directory.name for job in plan.jobs}:
            continue
        theirs = Asked.read(directory)
        same = [job for job in plan.jobs if (job.method.title, job.seed) == (theirs.title, theirs.seed)]
        tables = [plan.experiment.table(job.method, job.seed) for job in same]
        gone = f"{theirs.title}, seed {theirs.seed}, is missing here"
        change = difference(tables[0], theirs.table) if tables else gone
        raise UserError(
            f"{plan.home / ASKED} is not as it was when {directory.name} was started ({change}): "
            "undo that change, or start a new comparison with 'fedcohort run FILE'"
        )


def carry_out(plan: Plan, watcher: Watcher) -> list[Outcome]:
    """Every run to its end: complete ones are read, stopped ones continued, the others started.

    They go one after the other, each on all cores, until it is seen that all will take long: then they go
    side by side. On a cluster see :mod:`fedcohort.runs.on_ray`.
    """
    alone = any(job.directory == plan.home for job in plan.jobs)  # a single run holds its directory itself
    refuse_links(plan.home)
    with disk_mistakes(plan.home), nullcontext() if alone else held(plan.home):
        left = [job for job in plan.jobs if read_result(job.directory) is None]
        schedule = Schedule(left, plan.experiment.rounds)
        timed = Timed(watcher, schedule)
        if plan.experiment.running.ray and left:
            from fedcohort.runs.on_ray import carry_out_on_ray

            carry_out_on_ray(plan, schedule, timed)
        elif side_by_side() > 1:
            _until_worth_it(plan.experiment, schedule, timed)
            if len(schedule.waiting) > 1:
                schedule.size = min(side_by_side(), len(schedule.waiting))
                with ProcessPool(schedule.size) as pool:
                    pool.carry_out(plan.experiment, schedule, timed)
        while schedule.waiting:
            run_job(plan.experiment, schedule.next(), timed)
        return [run_job(plan.experiment, job, timed) for job in plan.jobs]


def _until_worth_it(experiment: Experiment, schedule: Schedule, timed: Timed) -> None:
    """Runs here, until what is left is worth processes; the one that goes on then is stopped, and waits."""
    timed.enough = lambda: bool(schedule.waiting) and schedule.seconds_left > WORTH_IT
    while len(schedule.waiting) > 1:
        job = schedule.next()
        try:
            run_job(experiment, job, timed)
        except StoppedError:
            schedule.again(job)
            break
        if schedule.seconds_left > WORTH_IT:
            break
    timed.enough = lambda: False


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
    runs = [(method, seed) for seed in experiment.seeds for method in experiment.methods]
    jobs = (Job(method, seed, home / run_name(experiment.table(method, seed))) for method, seed in runs)
    return Plan(experiment, home, tuple(jobs))


def run_job(
    experiment: Experiment, job: Job, watcher: Watcher, engine: Callable[[Task], Engine] | None = None
) -> Outcome:
    """One run to its end."""
    name, table = job.method.title, experiment.table(job.method, job.seed)
    numbers = read_result(job.directory)
    if numbers is not None:
        check_config(job.directory, table)
        if not (job.directory / ROSTER).exists():
            _add_roster(experiment, job, table)
        return Outcome(name, job.seed, job.directory, numbers)
    task = experiment.task(job.seed)
    with own_mistakes():
        recorder = _recorder(job, table, task)
    with disk_mistakes(job.directory):
        job.directory.mkdir(parents=True, exist_ok=True)
        with held(job.directory):
            outcome = _run(experiment, job, task, recorder, watcher, engine)
    watcher.end(outcome)
    return outcome


def _add_roster(experiment: Experiment, job: Job, table: dict[str, Any]) -> None:
    """To a complete run of an older fedcohort, if its data are at hand: what looks at it need to know."""
    with suppress(UserError), disk_mistakes(job.directory):
        recorder = _recorder(job, table, experiment.task(job.seed))
        if read_environment(job.directory, AGAIN)["fingerprint"] == recorder.fingerprint:
            recorder.describe(only_missing=True)


def _recorder(job: Job, table: dict[str, Any], task: Task) -> Recorder:
    """With all that a report will need to know, so that it needs neither the data nor the user's code."""
    seen = task if job.method.pooled else task.for_method(job.method)
    profile = seen.profile(job.method)
    return Recorder(
        job.directory,
        table,
        task.data.fingerprint(),
        read=task.data.provenance["data"].get("read", ""),
        about=About.of(job.method, seen, profile),
        revealed=Revealed.of(seen.data, profile.counts, profile.summaries),
    )


def _run(
    experiment: Experiment,
    job: Job,
    task: Task,
    recorder: Recorder,
    watcher: Watcher,
    engine: Callable[[Task], Engine] | None,
) -> Outcome:
    name, restored = job.method.title, recorder.open()
    if restored is not None:
        _refuse_misfit(restored[0], task.for_method(job.method), experiment.rounds, job.directory)
    progress = watcher.begin(name, job.seed, experiment.rounds)
    trackers = start_trackers(experiment.trackers, job.directory, recorder.config, restored)
    callbacks, folder = (recorder, progress, *trackers), job.directory / CLIENTS
    wishes = experiment.rounds, experiment.evaluation
    with own_mistakes():
        result = run(job.method, task, *wishes, callbacks, restored, engine, folder)
    if result.state.round < experiment.rounds:
        raise StoppedError(f"{name} was asked to end after round {result.state.round}")
    recorder.finish(result.metrics)
    return Outcome(name, job.seed, job.directory, result.metrics)


def _refuse_misfit(state: State, task: Task, rounds: int, directory: Path) -> None:
    """Raises UserError if a checkpoint, whole as it is, is none of this task."""
    clients, groups, model = task.federation.num_clients, len(state.groups), task.model
    serves = state.grouping.get("group", torch.zeros(0))
    shapes = {(tuple(each.weights.params.shape), tuple(each.weights.buffers.shape)) for each in state.groups}
    fits = (
        0 <= state.round <= rounds
        and serves.dtype == torch.int64
        and serves.shape == (clients,)
        and bool(((serves >= 0) & (serves < groups)).all())
        and all(0 <= client < clients for client in state.clients)
        and (bool(state.encoders) or shapes == {((model.num_params,), (model.num_buffers,))})  # not merged
        and all(each.weights.params.dtype == torch.float32 for each in state.groups)
    )
    if not fits:
        raise damaged(directory / CURRENT, "it is no checkpoint of this run", AGAIN)
