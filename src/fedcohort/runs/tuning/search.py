"""Where to look for the best settings of a method, and which values to try next."""

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.runs.sweep import OF_METHODS, Point
from fedcohort.util.errors import UserError
from fedcohort.util.keyed import numpy_generator
from fedcohort.util.settings import Tried, tried_in

LR = "local.lr"
DIGITS = 3  # that a value has which somebody will read

Space = dict[str, tuple[Tried, bool]]  # where to look, and whether for whole numbers


def space_of(method: Method) -> Space:
    """What is worth tuning of a method: the clients' learning rate, and what its parts declare."""
    space: Space = {LR: (tried_in(Local)["lr"], False)}
    for part in method.parts:
        for name, where in tried_in(type(part)).items():
            space[f"{OF_METHODS}{part.name}.{name}"] = where, isinstance(getattr(part, name), int)
    return space


class Search:
    """Values at random; what methods have in common is the same in trials of the same number. The first trial
    is of the values that the file has."""

    batch: int | None = None  # trials that are begun before anything is learned of others; None: all

    def __init__(self, space: Space, seed: int, trials: int | None) -> None:
        self.space, self.seed, self.trials = space, seed, trials

    def ask(self, number: int) -> Point:
        """What trial ``number`` tries."""
        if number == 0:
            return {}
        shares = {key: numpy_generator(self.seed, "tune", number, key).random() for key in self.space}
        return {key: value_at(*about, shares[key]) for key, about in self.space.items()}

    def tell(self, number: int, rounds: int, score: float) -> None:
        """How trial ``number`` did after so many rounds."""

    def prunes(self, number: int) -> bool:
        """Whether to give it up, whatever its place among the others is."""
        return False

    def end(self, number: int, score: float, complete: bool) -> None:
        """Trial ``number`` goes no further; whether it went to the end."""


class Grid(Search):
    """Evenly spaced values of every setting in all combinations, as many as the trials allow; what trials are
    left over is at random. A setting that there are no two values for is as in the file."""

    def __init__(self, space: Space, seed: int, trials: int | None) -> None:
        super().__init__(space, seed, trials)
        if trials is None:
            raise UserError("--sampler grid needs to know how many trials there are: give --budget")
        shares = [[(place + 0.5) / many for place in range(many)] for many in _levels(len(space), trials - 1)]
        varied = {key: own for key, own in zip(space, shares, strict=True) if len(own) > 1}
        self.points = [
            {key: value_at(*space[key], share) for key, share in zip(varied, point, strict=True)}
            for point in (itertools.product(*varied.values()) if varied else ())
        ]

    def ask(self, number: int) -> Point:
        return self.points[number - 1] if 0 < number <= len(self.points) else super().ask(number)


def _levels(settings: int, trials: int) -> list[int]:
    """How many values of each setting: as even as can be, the first ones more."""
    levels = [1] * settings
    while fitting := [place for place in range(settings) if _combinations(levels, place) <= trials]:
        levels[min(fitting, key=lambda place: levels[place])] += 1
    return levels


def _combinations(levels: Sequence[int], place: int) -> int:
    """With one more value there."""
    return prod(levels) // levels[place] * (levels[place] + 1)


class Optuna(Search):
    """What Optuna's sampler proposes after the trials so far, given up when its pruner says so. It is told
    nothing of the file's own values, which may lie where it does not look."""

    batch = 9

    def __init__(self, space: Space, seed: int, trials: int | None) -> None:
        super().__init__(space, seed, trials)
        try:
            import optuna
        except ImportError:
            raise UserError("--sampler optuna needs Optuna: pip install 'fedcohort[tune]'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        first = self.batch - 1  # at random; what comes after them is learned from them
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=first)
        pruner = optuna.pruners.MedianPruner()  # Hyperband's brackets would learn one by one
        self.study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        self.given_up = optuna.trial.TrialState.PRUNED
        self.asked: dict[int, Any] = {}
        self.kinds = {key: _distribution(optuna.distributions, *about) for key, about in space.items()}

    def ask(self, number: int) -> Point:
        if number == 0:
            return {}
        self.asked[number] = self.study.ask(self.kinds)
        return {key: _readable(value) for key, value in self.asked[number].params.items()}

    def tell(self, number: int, rounds: int, score: float) -> None:
        if number in self.asked:
            self.asked[number].report(score, rounds)

    def prunes(self, number: int) -> bool:
        return number in self.asked and bool(self.asked[number].should_prune())

    def end(self, number: int, score: float, complete: bool) -> None:
        if number in self.asked and complete:
            self.study.tell(self.asked[number], score)
        elif number in self.asked:
            self.study.tell(self.asked[number], state=self.given_up)


SAMPLERS: dict[str, type[Search]] = {"random": Search, "grid": Grid, "optuna": Optuna}


def value_at(where: Tried, whole: bool, share: float) -> float | int:
    """The value that lies at ``share`` of the way from the least to the most."""
    if where.by_magnitude:
        value = where.low * (where.high / where.low) ** share
    else:
        value = where.low + (where.high - where.low) * share
    return round(value) if whole else _readable(value)


def _readable(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.{DIGITS}g}")


def _distribution(kinds: Any, where: Tried, whole: bool) -> Any:
    if whole:
        return kinds.IntDistribution(int(where.low), int(where.high))
    return kinds.FloatDistribution(where.low, where.high, log=where.by_magnitude)
