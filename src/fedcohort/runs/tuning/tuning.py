"""The settings with which each method does best, looked for in the same way and with the same budget for all.

A trial is a run with other values, evaluated on rows that are held out of the clients' training data: nobody
sees a test row. Where labels differ, accuracy jumps from round to round, so a trial is judged by the mean of
several; where an experiment sweeps conditions, by the mean over them. Trials are kept like any runs: tuning
that was stopped goes on where it was, and comes to the same values.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from fedcohort.data.splitting import SplitPlan
from fedcohort.runs.comparison import Plan, PlannedRun, Watcher, carry_out
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.longer import adopt
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.recorder import run_name
from fedcohort.runs.run import Callback
from fedcohort.runs.stored import TABLE, read_table
from fedcohort.runs.sweep import Point, Sweep, in_words, with_settings
from fedcohort.runs.tuning.halving import JUDGED_ON, Halving, Trial, late_score
from fedcohort.runs.tuning.search import LR, space_of


@dataclass(frozen=True)
class Tuning:
    """A search for the best values of every method of an experiment, kept in a directory."""

    experiment: Experiment
    home: Path
    halving: Halving  # with a search for each method

    @cached_property
    def variants(self) -> list[tuple[Point, Experiment]]:
        """The conditions under which every trial is run."""
        return list(self.experiment.variants())

    @property
    def runs(self) -> int | None:
        """How many will be begun or go on; None if nobody knows."""
        trainings = self.halving.trainings
        return None if trainings is None else trainings * len(self.variants) * len(self.experiment.seeds)

    def run(self, watcher: Watcher) -> list[Trial]:
        """All trials, as far as they got."""
        return self.halving.run(
            lambda trials, rounds, times: self._train(trials, rounds, _AndLater(watcher, times))
        )

    def best(self, trials: Sequence[Trial]) -> list[Trial]:
        """Of each method, the one that did best."""
        return self.halving.best(trials)

    def values(self, trial: Trial) -> Point:
        """Of all that is looked for, also where a trial has it as the file."""
        alone = self.experiment.of_one(self.experiment.methods[trial.method])
        space = self.halving.searches[trial.method].space
        return {key: trial.point[key] if key in trial.point else alone.value(key) for key in space}

    def tuned(self, trials: Sequence[Trial]) -> Experiment:
        """The experiment with the best values of each method."""
        chosen = []
        for trial in self.best(trials):
            method = self.experiment.methods[trial.method]
            (tuned,) = with_settings([method], trial.point)
            chosen.append(replace(tuned, label="" if str(tuned) == method.title else method.title))
        found = self.experiment.with_methods(chosen)
        own = {
            method.title: {**found.own_local.get(method.title, {}), "lr": trial.point[LR]}
            for method, trial in zip(chosen, self.best(trials), strict=True)
            if LR in trial.point
        }
        return replace(found, own_local={**found.own_local, **own})

    def _train(self, trials: Sequence[Trial], rounds: int, watcher: Watcher) -> None:
        """Takes trials to so many rounds, and asks how they did then."""
        runs = [
            (trial, self._where(trial, variant, seed, rounds))
            for trial in trials
            for variant in self.variants
            for seed in self.experiment.seeds
        ]
        todo = {job.directory: job for _, job in runs if job.experiment.rounds == rounds}  # others are beyond
        adopt(self.home, [(job.directory, job.table) for job in todo.values()])
        carry_out(Plan(self.experiment, self.home, tuple(todo.values())), watcher)
        for trial in trials:
            metric = self.experiment.evaluation.metric
            told = [read_table(job.directory / TABLE) for own, job in runs if own is trial]
            trial.scores[rounds] = fmean(late_score(rows, rounds, metric) for rows in told)

    def _where(self, trial: Trial, variant: tuple[Point, Experiment], seed: int, rounds: int) -> PlannedRun:
        """The run that takes a trial to so many rounds; if it was there once, the one that went beyond."""
        jobs = [self._job(trial, *variant, seed, rung) for rung in self.halving.rungs if rung >= rounds]
        return next((job for job in jobs[1:] if job.directory.exists()), jobs[0])

    def _split(self, alone: Experiment) -> SplitPlan:
        """What is held out stands for the test rows; nobody chooses a round here, so validation rows are held
        out only for a method that needs some."""
        needed = any("validation" in method.uses for method in self.experiment.methods)
        chooses = alone.evaluation.on == "validation" and not needed
        validation = 0.0 if chooses else alone.split.validation
        return replace(alone.split, tuning=JUDGED_ON, validation=validation)

    def _job(self, trial: Trial, condition: Point, variant: Experiment, seed: int, rounds: int) -> PlannedRun:
        method = variant.methods[trial.method]
        alone = variant.of_one(method)
        (tried,) = with_settings([method], trial.point)
        lr = trial.point.get(LR, alone.local.lr)
        asked = replace(
            alone,
            rounds=rounds,
            methods=(tried,),
            local=replace(alone.local, lr=lr),
            split=self._split(alone),
            evaluation=replace(
                alone.evaluation, every=self.halving.every, adapted=False, on="test", patience=None
            ),
            trackers=(),
        )
        words = in_words({**condition, LR: f"{lr:g}"})
        return PlannedRun(asked, tried, seed, self.home / run_name(asked.table(tried, seed)), words)


def without_tuned(experiment: Experiment) -> Experiment:
    """The experiment without lists of what tuning looks for itself, and a note on that."""
    tuned = {key for method in experiment.methods for key in space_of(method)}
    left = tuple((key, values) for key, values in experiment.sweep.values if key not in tuned)
    dropped = [key for key, _ in experiment.sweep.values if key in tuned]
    if not dropped:
        return experiment
    note = f"tuning looks for {', '.join(dropped)} itself: the values in [sweep] are left out"
    sweep = Sweep(left, experiment.sweep.zipped)
    return replace(experiment, sweep=sweep, notes=(*experiment.notes, note))


class _AndLater:
    """A watcher that knows how much longer than these runs all that comes after them takes."""

    def __init__(self, watcher: Watcher, times: float) -> None:
        self.watcher, self.times, self.since = watcher, times, time.monotonic()

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        return self.watcher.begin(method, seed, rounds)

    def expect(self, seconds: float) -> None:
        whole = time.monotonic() - self.since + seconds
        self.watcher.expect(seconds + self.times * whole)

    def end(self, outcome: Outcome) -> None:
        self.watcher.end(outcome)

    def fail(self, method: str, seed: int, error: Exception) -> None:
        self.watcher.fail(method, seed, error)
