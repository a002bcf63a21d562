"""A run in a few numbers: global accuracy summed up over its rounds, as papers print it.

Only evaluated rounds count, each of them once. With ``evaluate.every = 5`` the last 10 of 100 rounds are
rounds 95 and 100; the last round is always evaluated, and a block without any evaluation has no number.
"""

import math
import re
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.evaluate import Row
from fedcohort.stats.metrics import rounds_to_target

ACCURACY = "global.accuracy"


class Curve(NamedTuple):
    """Accuracy by evaluated round; rounds are counted from 1."""

    rounds: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Curve":
        """From the rows of global accuracy."""
        return cls(np.array([row.round for row in rows]), np.array([row.value for row in rows]))

    def last(self, count: int) -> float:
        """The mean over the last ``count`` rounds (FedEntOpt, Tables I and IV: 10)."""
        return float(self.values[self.rounds > self.rounds[-1] - count].mean())

    def best(self) -> float:
        """The highest of all rounds (CAFA, Table V). It is chosen on the test samples, so it flatters."""
        return float(self.values.max())

    def blocks(self, length: int) -> dict[tuple[int, int], float]:
        """The mean over rounds 1 to ``length``, over the next ``length``, ... (CAFA, Table IV: 30)."""
        block, end = (self.rounds - 1) // length, int(self.rounds[-1])
        return {
            (number * length + 1, min((number + 1) * length, end)): float(self.values[block == number].mean())
            for number in np.unique(block).tolist()
        }

    def smoothed(self, weight: float) -> float:
        """The mean of all rounds so far, one that is d rounds old weighing ``weight ** d``.

        CAFA's Fig. 6 shows such a time-weighted exponential moving average and does not state the weight.
        The weights sum to one, so that the first rounds are not drawn towards 0.
        """
        return float(np.average(self.values, weights=weight ** (self.rounds[-1] - self.rounds)))


def diverged(training: Sequence[float], evaluated: Sequence[float], constant: bool, classes: int) -> bool:
    """Whether training went wrong: from the loss of every round (infinite where no answer could be used),
    that of every evaluation, and whether the model does no better than a ``constant`` answer.

    It did if the last of either is no number; if the mean training loss of the last third of the rounds is
    above both that of the first third and that of guessing; or if the model is as good as constant and its
    loss above that of guessing, and either higher than at first or more than twice as high. A high loss alone
    says little: a model may be right, and sure of its few mistakes.
    """
    if not all(map(math.isfinite, (*training[-1:], *evaluated[-1:]))):
        return True
    guessing, third = math.log(max(classes, 2)), len(training) // 3
    if third and fmean(training[-third:]) > max(guessing, fmean(training[:third])):
        return True
    if not constant or not len(evaluated):
        return False
    first, last = evaluated[0], evaluated[-1]
    return last > guessing and (last > first or last > 2 * guessing)


def smoothed_row(rows: Sequence[Row], weight: float) -> Row:
    """The smoothed curve at this evaluation; at the last one it is a number of the run."""
    return Row(rows[-1].round, "global", "", "", "accuracy_smoothed", Curve.of(rows).smoothed(weight))


def run_rows(
    rows: Sequence[Row], last: int | None, best: bool, blocks: int | None, target: float | None
) -> list[Row]:
    """What is wanted of a whole run, at its end, from the rows of global accuracy."""
    curve, values = Curve.of(rows), dict[str, float]()
    if last is not None:
        values[f"accuracy_last_{last}"] = curve.last(last)
    if best:
        values["accuracy_best"] = curve.best()
    if blocks is not None:
        means = curve.blocks(blocks)
        values |= {f"accuracy_rounds_{first}_{end}": mean for (first, end), mean in means.items()}
    number = rows[-1].round
    summary = [Row(number, "global", "", "", metric, value) for metric, value in values.items()]
    if target is not None:
        first = rounds_to_target(curve.values, target, curve.rounds)
        summary.append(Row(number, "run", "", "", "rounds_to_target", first))
    return summary


def titles(keys: Iterable[str]) -> dict[str, str]:
    """Those keys that sum up rounds, with the words of a table's heading: ``rounds 1-30``, ``last 10``."""
    prefix = f"{ACCURACY}_"
    return {
        key: re.sub(r"(\d)_(\d)", r"\1-\2", key.removeprefix(prefix)).replace("_", " ")
        for key in keys
        if key.startswith(prefix)
    }
