"""The method that gained most over FedAvg on the federations most like this one.

Federations are compared by what label counts tell of them (``COMPARED``), each feature in units of its
standard deviation over the table. The nearest ones are averaged, the nearer the heavier.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.core.method import Method
from fedcohort.runs.advice.evidence import BASE, FEATURES, Measured, features_of, shipped
from fedcohort.stats.label_distances import Array
from fedcohort.util.errors import UserError

NEAR = 12  # federations that count
FEWEST = 3  # of them on which a method was tried, or nothing is said of it
SEVERAL = 3  # methods to tune where the table is no good judge of which is best
INTERVAL = 0.1, 0.9  # of the gains on them
COMPARED = ("emd_share", "held", "share", "samples")  # features by which federations are near each other
MAGNITUDES = {"samples"}  # those that are compared by their logarithm
WORDS = {  # of features, where they lie outside what was measured, and how their numbers are written
    "clients": ("clients", ",.0f"),
    "classes": ("classes", ",.0f"),
    "samples": ("samples of a client", ",.0f"),
    "cohort": ("clients a round", ",.0f"),
    "share": ("share of the clients a round", ".0%"),
    "gini": ("Gini coefficient of sizes", ".2f"),
}


class ExpectedGain(NamedTuple):
    """What is expected of a method."""

    method: str
    gain: float  # of accuracy over FedAvg
    low: float  # 80 % of the nearest federations' gains, by their weight, lie between these
    high: float
    best: int  # of the nearest federations: where no allowed method did better
    tried: int  # ... and where it was tried

    @property
    def sure(self) -> bool:
        """Whether it did better than FedAvg on nearly all of them."""
        return self.low > 0

    @property
    def words(self) -> str:
        """The gain, in points of accuracy."""
        gain, low, high = (f"{100 * value:+.1f}" for value in (self.gain, self.low, self.high))
        return f"{gain} points of accuracy over {BASE} ({low} to {high} on 80% of such federations)"


@dataclass(frozen=True)
class Advice:
    """The result of :func:`advise`."""

    ranking: tuple[ExpectedGain, ...]  # allowed methods, the best first
    near: tuple[Mapping[str, str], ...]  # what the nearest federations were made of, the nearest first
    features: Mapping[str, float]
    outside: tuple[str, ...]  # in what nothing like it was measured, in words
    epsilon: float | None
    trusted: bool  # on unseen federations, such advice gave away less than every single method

    @property
    def best(self) -> ExpectedGain:
        return self.ranking[0]

    @property
    def runner_up(self) -> ExpectedGain | None:
        return next(iter(self.ranking[1:]), None)

    @property
    def choices(self) -> tuple[str, ...]:
        """What to train with: the best method, or those among which tuning has to choose."""
        return tuple(each.method for each in self.ranking[: 1 if self.trusted else SEVERAL])

    @property
    def words(self) -> str:
        """What to do and what to expect of it."""
        if self.best.method == BASE:
            return f"{BASE}: nothing else did better on federations like this one"
        nobody = not any(each.sure for each in self.ranking)
        doubt = f"; no method is surely better than {BASE} here" if nobody else "; it may be worse, too"
        doubt = "" if self.best.sure else doubt
        return f"{self.best.method}: {self.best.words}{doubt}"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "method": self.best.method,
            "choices": list(self.choices),
            "words": self.words,
            "sure": self.best.sure,
            "ranking": [expected._asdict() for expected in self.ranking],
            "nearest": [dict(names) for names in self.near],
            "features": dict(self.features),
            "outside": list(self.outside),
            "epsilon": self.epsilon,
        }


def advise(
    counts: ArrayLike,
    cohort: int,
    *,
    one_model: bool = False,
    epsilon: float | None = None,
    evidence: Measured | None = None,
) -> Advice:
    """Which method to train with, where ``cohort`` of the clients with these label counts train a round.

    ``one_model``: the same model is to serve every client. ``epsilon``: the counts are noised, as clients
    reveal them; then only runs with noised counts are looked at.
    """
    evidence = evidence or shipped()
    evidence = evidence.where(np.isnan(evidence.epsilon) == (epsilon is None))
    if not len(evidence):
        raise UserError(
            "nothing was measured with noised label counts: leave epsilon out, or compare methods"
        )
    features = features_of(counts, cohort)
    weights = nearness(evidence, features, epsilon)
    methods = [name for name in evidence.gain if not one_model or Method.parse(name).one_model]
    found = expected(evidence, weights, methods)
    if not found:
        raise UserError("no method was tried on federations like this one: compare some with 'fedcohort run'")
    order = np.argsort(-weights, kind="stable")[: np.count_nonzero(weights)]
    near = tuple(evidence.names[row] for row in order.tolist())
    trusted = all(evidence.about["trusted"][kind] for kind in kinds(one_model, epsilon is not None))
    return Advice(found, near, features, tuple(_outside(evidence, features, epsilon)), epsilon, trusted)


def kinds(one_model: bool, noised: bool) -> list[str]:
    """Of advice, of which the table's makers found out whether it can be trusted."""
    return [kind for kind, asked in (("one_model", one_model), ("noised", noised)) if asked] or ["any"]


def nearness(evidence: Measured, features: Mapping[str, float], epsilon: float | None) -> Array:
    """``[F]``: how much each federation counts; 0 for all but the nearest."""
    here = np.array([features[name] for name in COMPARED])
    table = _positions(evidence.features[:, [FEATURES.index(name) for name in COMPARED]])
    own = _positions(here)
    if epsilon is not None:
        table = np.column_stack([table, np.log(evidence.epsilon)])
        own = np.append(own, np.log(epsilon))
    spread = table.std(axis=0)
    spread[spread == 0] = 1.0
    distance = np.sqrt((((table - own) / spread) ** 2).sum(axis=1))
    reach = np.sort(distance)[min(NEAR, len(distance) - 1)]  # the first that counts no more
    weight = np.clip(1 - (distance / max(reach, 1e-9)) ** 3, 0, None) ** 3  # as in local regression
    return weight / weight.sum() if weight.any() else np.full(len(weight), 1 / len(weight))


def expected(evidence: Measured, weights: Array, methods: list[str]) -> tuple[ExpectedGain, ...]:
    """What the weighted federations tell of each method, the best first."""
    near = np.flatnonzero(weights)
    gains = {method: evidence.gain[method][near] for method in methods}
    most = np.fmax.reduce(list(gains.values()))
    found = []
    for method, gain in gains.items():
        known = ~np.isnan(gain)
        if known.sum() < min(FEWEST, len(near)):
            continue
        own, weight = gain[known], weights[near][known]
        mean, best = float(np.average(own, weights=weight)), int((gain >= most).sum())
        low, high = _quantiles(own, weight, INTERVAL)
        found.append(ExpectedGain(method, mean, low, high, best, len(own)))
    return tuple(sorted(found, key=lambda each: (-each.gain, each.method != BASE)))


def _positions(features: Array) -> Array:
    """Where federations lie: the last axis holds the compared features."""
    logs = np.array([name in MAGNITUDES for name in COMPARED])
    return np.where(logs, np.log(np.maximum(features, 1e-9)), features)


def _quantiles(values: Array, weights: Array, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Of weighted values, each of which stands in the middle of its weight."""
    order = np.argsort(values, kind="stable")
    ends = weights[order].cumsum()
    return tuple(np.interp(shares, (ends - weights[order] / 2) / ends[-1], values[order]).tolist())


def _outside(evidence: Measured, features: Mapping[str, float], epsilon: float | None) -> list[str]:
    """In which features a federation is unlike all that were measured."""
    measured = {name: evidence.features[:, place] for place, name in enumerate(FEATURES)}
    told = [
        _unlike(words, features[name], measured[name], form)
        for name, (words, form) in WORDS.items()
        if not 0.9 * measured[name].min() <= features[name] <= 1.1 * measured[name].max()
    ]
    if epsilon is not None and not evidence.epsilon.min() <= epsilon <= evidence.epsilon.max():
        told.append(_unlike("epsilon", epsilon, evidence.epsilon, "g"))
    return told


def _unlike(words: str, here: float, measured: Array, form: str) -> str:
    own, low, high = (format(value, form) for value in (here, measured.min(), measured.max()))
    return f"{words}: {own} here, {low if low == high else f'{low} to {high}'} in what was measured"
