"""Trials of several methods, as many of one as of another, and given up early: all train for a third of the
rounds, and the best third of each method's goes on to the end."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fedcohort.core.evaluate import Row
from fedcohort.runs.outcomes.over_rounds import ACCURACY
from fedcohort.runs.outcomes.standings import nature
from fedcohort.runs.sweep import Point
from fedcohort.runs.tuning.search import Search

JUDGED_ON = 0.2  # of the training rows, held out for it
NONE = -1e9  # the score of what is no number
THIRD = 3  # of as many trials, one goes on
LOOKS = 12  # evaluations of a trial that goes to the end
AT_A_TIME = 3  # trials of a method that are begun together, where time is what ends the search


@dataclass
class Trial:
    """Values of one method that are tried, and how well they did after how many rounds."""

    method: int  # its place among the searches
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


# Takes trials to so many rounds, and writes down how they did then. All that comes after takes so many
# times as long.
Train = Callable[[Sequence[Trial], int, float], None]


@dataclass(frozen=True)
class Halving:
    """How trials are begun, compared and given up."""

    searches: Sequence[Search]  # one for each method
    length: int  # rounds of a trial that goes to the end
    trials: int | None  # of each method; None: until the time is over
    seconds: float = math.inf
    clock: Callable[[], float] = time.monotonic

    @property
    def every(self) -> int:
        """Rounds between two evaluations."""
        return max(1, self.length // LOOKS)

    @property
    def rungs(self) -> list[int]:
        """After how many rounds trials are compared; all but the last are evaluated anyway."""
        first = max(self.every, self.length // THIRD // self.every * self.every)
        return sorted({min(first, self.length), self.length})

    @property
    def trainings(self) -> int | None:
        """How often some trial is taken to the next rung; None if nobody knows."""
        if self.trials is None:
            return None
        each = [size + _kept(size) * (len(self.rungs) - 1) for size in self._sizes()]
        return len(self.searches) * sum(each)

    def run(self, train: Train) -> list[Trial]:
        """All trials, as far as they got."""
        done: list[Trial] = []
        for batch, ahead in self._batches():
            left = batch
            for rounds, times in zip(self.rungs, ahead, strict=True):
                train(left, rounds, times)
                left = [trial for own in by_method(left) for trial in self._best(own, rounds)]
            for trial in batch:
                self.searches[trial.method].end(trial.number, trial.score, trial.rounds == self.length)
            done += batch
        return done

    def best(self, trials: Sequence[Trial]) -> list[Trial]:
        """Of each method, the trial that did best of those that went furthest."""
        return [max(own, key=lambda trial: (trial.rounds, trial.score)) for own in by_method(trials)]

    def _sizes(self) -> list[int]:
        """How many trials of a method are begun together, one time after the other."""
        if self.trials is None:
            return [AT_A_TIME]
        size = min(search.batch or self.trials for search in self.searches)
        return [min(size, self.trials - begun) for begun in range(0, self.trials, size)]

    def _batches(self) -> Iterator[tuple[list[Trial], list[float]]]:
        """Trials that are begun together, as many of one method as of another, while there is time for as
        many more; and for each rung, how much longer than it takes all that comes after it."""
        since, longest, number = self.clock(), 0.0, 0
        sizes, costs = self._sizes(), [cost for size in self._sizes() for cost in self._costs(size)]
        for place in itertools.count() if self.trials is None else range(len(sizes)):
            began = self.clock()
            if number and began - since + longest > self.seconds:
                return
            size = sizes[place % len(sizes)]
            batch = [
                Trial(method, each, search.ask(each))
                for method, search in enumerate(self.searches)
                for each in range(number, number + size)
            ]
            first = place % len(sizes) * len(self.rungs)
            rungs = range(first, first + len(self.rungs))
            yield batch, [sum(costs[rung + 1 :]) / costs[rung] for rung in rungs]
            number, longest = number + size, max(longest, self.clock() - began)

    def _costs(self, size: int) -> list[int]:
        """Rounds that so many trials of a method train until each rung."""
        first, *more = self.rungs
        return [size * first, *(_kept(size) * (rung - first) for rung in more)]

    def _best(self, trials: Sequence[Trial], rounds: int) -> list[Trial]:
        """Those of a method that go on after so many rounds."""
        search = self.searches[trials[0].method]
        for trial in trials:
            search.tell(trial.number, rounds, trial.score)
        ranked = sorted(trials, key=lambda trial: -trial.score)
        going_on = [trial for trial in ranked if not search.prunes(trial.number)] or ranked[:1]
        return going_on[: _kept(len(trials))]


def late_score(rows: Iterable[Row], rounds: int, metric: str = ACCURACY) -> float:
    """Of a run, the mean over the second half of so many rounds, more being better; less than any where it is
    no number."""
    late = [row.value for row in rows if row.key == metric and rounds / 2 < row.round <= rounds]
    mean = sum(late) / len(late) * (1 if nature(metric)[0] else -1) if late else math.nan
    return mean if math.isfinite(mean) else NONE


def by_method(trials: Sequence[Trial]) -> list[list[Trial]]:
    known = dict.fromkeys(trial.method for trial in trials)
    return [[trial for trial in trials if trial.method == method] for method in known]


def _kept(trials: int) -> int:
    """How many of so many go on."""
    return max(1, trials // THIRD)
