"""How much accuracy the advice gives away on federations it has not seen, and what always choosing one
method would give away."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.core.method import Method
from fedcohort.runs.advice.evidence import BASE, FEATURES, Measured
from fedcohort.runs.advice.prediction import expected, nearness
from fedcohort.util.keyed import numpy_generator
from studies.dealing import markdown

DRAWS = 2000  # of the bootstrap
CHOSEN_ON = 52  # federations that were there when the features of prediction.py were chosen
STIFF = 10.0  # penalty of the regression
Names = Mapping[str, str]
Chooser = Callable[[Measured, Measured, list[str]], list[str]]  # by the first, for each row of the second
Regrets = dict[str, dict[str, np.ndarray]]  # by who chooses and by what is held out, of every federation


def data(names: Names) -> str:
    return names["data"]


def family(names: Names) -> str:
    """The protocol by which a federation was dealt; both kinds of Dirichlet draws are one."""
    return names["skew"].partition("(")[0].partition("_")[0]


# What a federation must not share with any that the advice knows.
HELD_OUT: dict[str, tuple[Callable[[Names], str], ...]] = {
    "other data": (data,),
    "other skew": (family,),
    "other data and skew": (data, family),
}


def by_nearest(known: Measured, asked: Measured, allowed: list[str]) -> list[str]:
    """As ``fedcohort advise`` does."""
    picks = []
    for features, epsilon in zip(asked.features.tolist(), asked.epsilon.tolist(), strict=True):
        here = dict(zip(FEATURES, features, strict=True))
        weights = nearness(known, here, None if np.isnan(epsilon) else epsilon)
        picks.append(expected(known, weights, allowed)[0].method)
    return picks


def by_regression(known: Measured, asked: Measured, allowed: list[str]) -> list[str]:
    """Gains as quadratic functions of the features, by ridge regression."""
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    gains = np.nan_to_num(np.stack([known.gain[method] for method in allowed], axis=1))
    model = make_pipeline(StandardScaler(), PolynomialFeatures(2), StandardScaler(), Ridge(STIFF))
    guessed = model.fit(known.features, gains).predict(asked.features)
    return [allowed[place] for place in guessed.reshape(len(asked), -1).argmax(axis=1).tolist()]


def by_mean(known: Measured, asked: Measured, allowed: list[str]) -> list[str]:
    """The method that was best on average, whatever the federation is like."""
    best = max(allowed, key=lambda method: float(np.nanmean(known.gain[method])))
    return [best] * len(asked)


CHOOSERS: dict[str, Chooser] = {
    "nearest federations": by_nearest,
    "regression": by_regression,
    "best on average": by_mean,
}


def chosen(
    evidence: Measured, choose: Chooser, keys: Sequence[Callable[[Names], str]], allowed: list[str]
) -> list[str]:
    """For each federation, what is chosen by those that share none of the keys; FedAvg if there are none."""
    own = [tuple(key(names) for key in keys) for names in evidence.names]
    picks = [BASE] * len(evidence)
    for group in dict.fromkeys(own):
        apart = [all(a != b for a, b in zip(group, other, strict=True)) for other in own]
        asked = np.array([other == group for other in own])
        if any(apart):
            found = choose(evidence.where(np.array(apart)), evidence.where(asked), allowed)
            for place, method in zip(np.flatnonzero(asked).tolist(), found, strict=True):
                picks[place] = method
    return picks


def regrets(evidence: Measured, one_model: bool) -> Regrets:
    """Of every chooser, and of always choosing the same."""
    allowed = [method for method in evidence.gain if not one_model or Method.parse(method).one_model]
    gains = np.stack([evidence.gain[method] for method in allowed])
    lost = dict(zip(allowed, np.nanmax(gains, axis=0) - gains, strict=True))
    found: Regrets = {}
    for title, choose in CHOOSERS.items():
        found[title] = {}
        for held, keys in HELD_OUT.items():
            picks = chosen(evidence, choose, keys, allowed)
            found[title][held] = np.array([lost[method][row] for row, method in enumerate(picks)])
    return {**found, **{f"always {method}": dict.fromkeys(HELD_OUT, lost[method]) for method in allowed}}


class Interval(NamedTuple):
    """A mean over federations and its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """In points of accuracy."""
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"


def interval(values: np.ndarray) -> Interval:
    """By drawing federations again and again from these."""
    known = values[~np.isnan(values)]
    draws = numpy_generator(0, "regret").choice(known, (DRAWS, len(known))).mean(axis=1)
    return Interval(float(known.mean()), *np.quantile(draws, (0.025, 0.975)).tolist())


def margins(found: Regrets) -> dict[str, tuple[str, Interval]]:
    """By what is held out: the best single method, and how much more it gives away than the advice."""
    rivals = {}
    for held, ours in found[next(iter(CHOOSERS))].items():
        single = {title: own[held] for title, own in found.items() if title not in CHOOSERS}
        best = min(single, key=lambda title: float(np.nanmean(single[title])))
        rivals[held] = best, interval(single[best] - ours)
    return rivals


def trusted(found: Regrets) -> bool:
    """Whether the advice surely gives away less than each single method, whatever is held out."""
    return all(margin.low > 0 for _, margin in margins(found).values())


def since(found: Regrets, first: int) -> Regrets:
    """Of all federations but the first ones."""
    return {title: {held: own[first:] for held, own in each.items()} for title, each in found.items()}


def verdict(found: Regrets) -> str:
    """Whether the advice gives away less than the best single method, for each kind of unseen federation."""
    lines = []
    for held, (rival, margin) in margins(found).items():
        told = "surely smaller" if margin.low > 0 else "not surely smaller"
        lines.append(f"- {held}: *{rival}* gives away {margin} points more; the regret of advice is {told}.")
    fresh = since(found, CHOSEN_ON)
    if number := next(iter(next(iter(fresh.values())).values())).size:
        told = "; ".join(f"{held} {margin}" for held, (_, margin) in margins(fresh).items())
        lines.append(f"- the same on the {number} federations that came after features were chosen: {told}.")
    return "\n".join(lines)


def regret_table(found: Regrets, titles: Sequence[str] | None = None) -> str:
    """Points of accuracy, the least first; of some choosers only."""
    order = sorted(found, key=lambda title: (title not in CHOOSERS, np.nanmean(found[title]["other data"])))
    shown = [title for title in order if titles is None or title in titles]
    lines = [[title, *(str(interval(found[title][held])) for held in HELD_OUT)] for title in shown]
    return markdown(["who chooses", *HELD_OUT], lines)


KINDS = {"any": "Any method", "one_model": "One model for all", "noised": "Noised label counts"}


def summary(found: Mapping[str, Regrets]) -> str:
    """For who asks whether to follow advice: beside it the best single methods, and what ``auto`` means."""
    parts = []
    for kind, own in found.items():
        single = sorted(
            (title for title in own if title not in CHOOSERS),
            key=lambda title: np.nanmean(own[title]["other data"]),
        )
        rows = regret_table(own, [next(iter(CHOOSERS)), *single[:3], f"always {BASE}"])
        then = "takes the first" if trusted(own) else "tunes the three best"
        parts.append(
            f"**{KINDS[kind]}.**\n\n{rows}\n\n{verdict(own)}\n- so here `auto` {then} of what is advised."
        )
    return "\n\n".join(parts)
