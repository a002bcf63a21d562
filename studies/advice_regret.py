"""How much accuracy the advice gives away on federations it has not seen, and what always choosing one
method would give away."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from fedcohort.advice.evidence import FEATURES, Evidence
from fedcohort.advice.prediction import expected, nearness
from fedcohort.core.method import Method
from fedcohort.util.keyed import numpy_generator
from studies.dealing import markdown

DRAWS = 2000  # of the bootstrap
Names = Mapping[str, str]
Chooser = Callable[[Evidence, Mapping[str, float], float | None, list[str]], str]


def family(names: Names) -> str:
    """The protocol by which a federation was dealt; both kinds of Dirichlet draws are one."""
    return names["skew"].partition("(")[0].partition("_")[0]


# Of which federations an advice for the first may know nothing.
HELD_OUT: dict[str, Callable[[Names, Names], bool]] = {
    "other data": lambda ours, theirs: ours["data"] == theirs["data"],
    "other skew": lambda ours, theirs: family(ours) == family(theirs),
    "other data and skew": lambda ours, theirs: (
        ours["data"] == theirs["data"] or family(ours) == family(theirs)
    ),
}


def by_nearest(
    evidence: Evidence, features: Mapping[str, float], epsilon: float | None, allowed: list[str]
) -> str:
    """As ``fedcohort advise`` does."""
    return expected(evidence, nearness(evidence, features, epsilon), allowed)[0].method


def by_mean(
    evidence: Evidence, features: Mapping[str, float], epsilon: float | None, allowed: list[str]
) -> str:
    """The method that was best on average, whatever the federation is like."""
    return max(allowed, key=lambda method: float(np.nanmean(evidence.gain[method])))


def by_ridge(
    evidence: Evidence, features: Mapping[str, float], epsilon: float | None, allowed: list[str]
) -> str:
    """Each method's gain as a linear function of the features."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    here, guessed = np.array([[features[name] for name in FEATURES]]), {}
    for method in allowed:
        gain = evidence.gain[method]
        known = ~np.isnan(gain)
        model = make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge(10.0))
        guessed[method] = float(model.fit(evidence.features[known], gain[known]).predict(here)[0])
    return max(guessed, key=lambda method: guessed[method])


CHOOSERS: dict[str, Chooser] = {
    "nearest federations": by_nearest,
    "quadratic regression": by_ridge,
    "best on average": by_mean,
}


class Regret(NamedTuple):
    """Mean regret and the 95 % interval of it."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def regret_of(values: np.ndarray) -> Regret:
    """Of federations drawn again and again from these."""
    known = values[~np.isnan(values)]
    draws = numpy_generator(0, "regret").choice(known, (DRAWS, len(known))).mean(axis=1)
    return Regret(float(known.mean()), *np.quantile(draws, (0.025, 0.975)).tolist())


def chosen(
    evidence: Evidence, choose: Chooser, same: Callable[[Names, Names], bool], allowed: list[str]
) -> list[str]:
    """For each federation, the method that is chosen by others."""
    methods = []
    for row, names in enumerate(evidence.names):
        others = evidence.where(np.array([not same(names, other) for other in evidence.names]))
        features = dict(zip(FEATURES, evidence.features[row].tolist(), strict=True))
        epsilon = evidence.epsilon[row]
        methods.append(choose(others, features, None if np.isnan(epsilon) else float(epsilon), allowed))
    return methods


def allowed_in(evidence: Evidence, one_model: bool) -> list[str]:
    return [method for method in evidence.gain if not one_model or Method.parse(method).one_model]


def regrets(evidence: Evidence, one_model: bool) -> dict[str, dict[str, np.ndarray]]:
    """By who chooses and by what is held out, the regret on every federation."""
    allowed = allowed_in(evidence, one_model)
    gains = np.stack([evidence.gain[method] for method in allowed])
    lost = dict(zip(allowed, np.nanmax(gains, axis=0) - gains, strict=True))
    found = {}
    for title, choose in CHOOSERS.items():
        found[title] = {}
        for held, same in HELD_OUT.items():
            picks = chosen(evidence, choose, same, allowed)
            found[title][held] = np.array([lost[method][row] for row, method in enumerate(picks)])
    return {**found, **{f"always {method}": dict.fromkeys(HELD_OUT, lost[method]) for method in allowed}}


def regret_table(found: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Points of accuracy, the least first."""
    order = sorted(found, key=lambda title: (title not in CHOOSERS, np.nanmean(found[title]["other data"])))
    lines = [[title, *(str(regret_of(found[title][held])) for held in HELD_OUT)] for title in order]
    return markdown(["who chooses", *HELD_OUT], lines)
