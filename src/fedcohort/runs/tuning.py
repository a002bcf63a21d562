"""The settings with which each method does best, looked for in the same way and with the same budget for all.

A trial is a run with other values, evaluated on rows that are held out of the clients' training data: nobody
sees a test row. All trials train for a third of the rounds, and the best third of each method goes on to the
end. Where labels differ, accuracy jumps from round to round, so a trial is judged by the mean of several.
Trials are kept like any runs: tuning that was stopped goes on where it was, and comes to the same values.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedcohort.data.splitting import SplitPlan
from fedcohort.runs.comparison import Job, Plan, Watcher, carry_out
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.longer import adopt
from fedcohort.runs.recorder import run_name
from fedcohort.runs.search import LR, Search
from fedcohort.runs.standings import nature
from fedcohort.runs.stored import TABLE, read_table
from fedcohort.runs.sweep import Point, with_settings

HELD_OUT = 0.2  # of the training rows, on which settings are judged
THIRD = 3  # of as many trials, one goes on
LOOKS = 12  # evaluations of a trial that goes to the end
NONE = -1e9  # the score of what is no number
AT_A_TIME = 9  # trials of a method, where time is what ends the search


@dataclass
class Trial:
    """Values of one method that are tried, and how well they did after how many rounds."""

    method: int  # its place in the experiment
    number: int
    point: Point
    scores: dict[int, float] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return max(self.scores, default=0)

    @property
    def score(self) -> float:
        """After its last round."""
        return self.scores.get(self.rounds, -math.inf)


@dataclass(frozen=True)
class Tuning:
    """A search for the best values of every method of an experiment, kept in a directory."""

    experiment: Experiment
    home: Path
    searches: Sequence[Search]  # one for each method
    trials: int | None  # of each method; None: until the time is over
    seconds: float = math.inf

    @property
    def every(self) -> int:
        """Rounds between two evaluations."""
        return max(1, self.experiment.rounds // LOOKS)

    @property
    def rungs(self) -> list[int]:
        """After how many rounds trials are compared; all but the last are evaluated anyway."""
        rounds, every = self.experiment.rounds, self.every
        first = max(every, rounds // THIRD // every * every)
        return sorted({min(first, rounds), rounds})

    def run(self, watcher: Watcher) -> list[Trial]:
        """All trials, as far as they got."""
        done: list[Trial] = []
        for batch in self._batches():
            left = batch
            for rounds in self.rungs:
                self._train(left, rounds, watcher)
                left = [trial for own in self._by_method(left) for trial in self._best(own, rounds)]
            done += batch
        return done

    def best(self, trials: Sequence[Trial]) -> list[Trial]:
        """Of each method, the trial that did best of those that went furthest."""
        return [max(own, key=lambda trial: (trial.rounds, trial.score)) for own in self._by_method(trials)]

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

    def _batches(self) -> Iterator[list[Trial]]:
        """Trials that are begun together, as many of one method as of another."""
        since, number = time.monotonic(), 0
        size = min((search.batch or self.trials or AT_A_TIME) for search in self.searches)
        while self.trials is None or number < self.trials:
            end = number + size if self.trials is None else min(number + size, self.trials)
            asked = [
                Trial(method, each, point)
                for method, search in enumerate(self.searches)
                for each in range(number, end)
                if (point := search.ask(each)) is not None
            ]
            if not asked or time.monotonic() - since > self.seconds:
                return
            yield asked
            number = end

    def _by_method(self, trials: Sequence[Trial]) -> list[list[Trial]]:
        known = dict.fromkeys(trial.method for trial in trials)
        return [[trial for trial in trials if trial.method == method] for method in known]

    def _best(self, trials: Sequence[Trial], rounds: int) -> list[Trial]:
        """Those of a method that go on after so many rounds."""
        search = self.searches[trials[0].method]
        for trial in trials:
            search.tell(trial.number, {rounds: trial.score})
        ranked = sorted(trials, key=lambda trial: -trial.score)
        kept = [trial for trial in ranked if not search.prunes(trial.number)] or ranked[:1]
        return kept[: max(1, len(trials) // THIRD)]

    def _train(self, trials: Sequence[Trial], rounds: int, watcher: Watcher) -> None:
        """Takes trials to so many rounds, and asks how they did then."""
        runs = [
            (trial, self._where(trial, seed, rounds)) for trial in trials for seed in self.experiment.seeds
        ]
        todo = {job.directory: job for _, job in runs if job.experiment.rounds == rounds}  # others are beyond
        adopt(self.home, [(job.directory, job.table) for job in todo.values()])
        carry_out(Plan(self.experiment, self.home, tuple(todo.values())), watcher)
        for trial in trials:
            metric = self.experiment.evaluation.metric
            told = [_score(job.directory, rounds, metric) for own, job in runs if own is trial]
            trial.scores[rounds] = sum(told) / len(told)

    def _where(self, trial: Trial, seed: int, rounds: int) -> Job:
        """The run that takes a trial to so many rounds; if it was there once, the one that went beyond."""
        jobs = [self._job(trial, seed, count) for count in self.rungs if count >= rounds]
        return next((job for job in jobs[1:] if job.directory.exists()), jobs[0])

    def _split(self, alone: Experiment) -> SplitPlan:
        """What is held out stands for the test rows; nobody chooses a round here, so validation rows are held
        out only for a method that needs some."""
        needed = any("validation" in method.uses for method in self.experiment.methods)
        chooses = alone.evaluation.on == "validation" and not needed
        validation = 0.0 if chooses else alone.split.validation
        return replace(alone.split, tuning=HELD_OUT, validation=validation)

    def _job(self, trial: Trial, seed: int, rounds: int) -> Job:
        method = self.experiment.methods[trial.method]
        alone = self.experiment.of_one(method)
        (tried,) = with_settings([method], trial.point)
        lr = trial.point.get(LR, alone.local.lr)
        asked = replace(
            alone,
            rounds=rounds,
            methods=(tried,),
            local=replace(alone.local, lr=lr),
            split=self._split(alone),
            evaluation=replace(alone.evaluation, every=self.every, adapted=False, on="test", patience=None),
            trackers=(),
        )
        return Job(asked, tried, seed, self.home / run_name(asked.table(tried, seed)), f"{LR}={lr:g}")


def _score(directory: Path, rounds: int, metric: str) -> float:
    """Of a run on what was held out, over the second half of so many rounds, more being better; less than any
    where it is no number."""
    rows = read_table(directory / TABLE)
    late = [row.value for row in rows if row.key == metric and rounds / 2 < row.round <= rounds]
    mean = sum(late) / len(late) * (1 if nature(metric)[0] else -1)
    return mean if math.isfinite(mean) else NONE
