"""Where to look for the best settings of a method, and which values to try next."""

import itertools
from collections.abc import Mapping
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

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        self.space, self.seed, self.trials = space, seed, trials

    def ask(self, number: int) -> Point | None:
        """What trial ``number`` tries; None: there is nothing else."""
        if number == 0:
            return {}
        shares = {key: numpy_generator(self.seed, "tune", number, key).random() for key in self.space}
        return {key: value_at(*about, shares[key]) for key, about in self.space.items()}

    def tell(self, number: int, scores: Mapping[int, float]) -> None:
        """How trial ``number`` did, by rounds."""

    def prunes(self, number: int) -> bool:
        """Whether to give it up, whatever its place among the others is."""
        return False


class Grid(Search):
    """Evenly spaced values of every setting, in all combinations: as many as the trials allow."""

    def ask(self, number: int) -> Point | None:
        if number == 0:
            return {}
        levels = max(2, int(self.trials ** (1 / len(self.space)) + 1e-9))
        shares = [place / (levels - 1) for place in range(levels)]
        every = itertools.product(shares, repeat=len(self.space))
        point = next(itertools.islice(every, number - 1, None), None)
        if point is None:
            return None
        return {key: value_at(*self.space[key], share) for key, share in zip(self.space, point, strict=True)}


class Optuna(Search):
    """What Optuna's sampler proposes after the trials so far, given up when its pruner says so."""

    batch = 9

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        super().__init__(space, seed, trials)
        try:
            import optuna
        except ImportError:
            raise UserError("--sampler optuna needs Optuna: pip install 'fedcohort[tune]'") from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler, pruner = optuna.samplers.TPESampler(seed=seed), optuna.pruners.HyperbandPruner()
        self.study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
        self.asked: dict[int, Any] = {}
        self.kinds = {key: _distribution(optuna.distributions, *about) for key, about in space.items()}

    def ask(self, number: int) -> Point | None:
        self.asked[number] = self.study.ask(self.kinds)
        return {} if number == 0 else dict(self.asked[number].params)

    def tell(self, number: int, scores: Mapping[int, float]) -> None:
        for rounds, score in scores.items():
            self.asked[number].report(score, rounds)

    def prunes(self, number: int) -> bool:
        return bool(self.asked[number].should_prune())


SAMPLERS: dict[str, type[Search]] = {"random": Search, "grid": Grid, "optuna": Optuna}


def value_at(where: Tried, whole: bool, share: float) -> float | int:
    """The value that lies at ``share`` of the way from the least to the most."""
    if where.by_magnitude:
        value = where.low * (where.high / where.low) ** share
    else:
        value = where.low + (where.high - where.low) * share
    return round(value) if whole else float(f"{value:.{DIGITS}g}")


def _distribution(kinds: Any, where: Tried, whole: bool) -> Any:
    if whole:
        return kinds.IntDistribution(int(where.low), int(where.high))
    return kinds.FloatDistribution(where.low, where.high, log=where.by_magnitude)
