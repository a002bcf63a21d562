"""Charts that compare methods: accuracy by round and by bytes, fairness, and what labels cohorts held.

A trace is tagged with its method and a *view*: one seed, or the mean of several.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedcohort.core.evaluate import VALIDATION
from fedcohort.report.evidence import Curve, Evidence, Labels, Run
from fedcohort.report.page import Card
from fedcohort.report.style import OTHERS, figure, plain, small, thinned
from fedcohort.stats.label_distances import Array

SCOPES = (f"{VALIDATION}global", f"{VALIDATION}personal", "global", "personal", "adapted")
MEAN = "mean"
BYTES = {"bytes_up", "bytes_down"}
SMOOTH = 25  # points of independent cohorts in the chart of their labels


class Series(NamedTuple):
    """One line of a chart."""

    title: str
    view: str
    x: Array
    y: Array
    spread: Array | None = None  # standard deviation over seeds


def views(evidence: Evidence) -> list[tuple[str, str]]:
    """The mean over seeds, if there are several, and each seed; as options of a filter."""
    seeds = [(str(seed), f"seed {seed}") for seed in evidence.seeds]
    return [(MEAN, f"mean ± sd of {len(seeds)} seeds"), *seeds] if len(seeds) > 1 else seeds


def scopes(evidence: Evidence) -> list[str]:
    """The scopes in which some run measured accuracy."""
    known = {
        key for run in evidence.runs for key, (_, values) in run.curves.items() if np.isfinite(values).any()
    }
    found = [scope for scope in SCOPES if f"{scope}.accuracy" in known]
    return [scope for scope in found if f"{VALIDATION}{scope}" not in found or _goes_on(evidence, scope)]


def _goes_on(evidence: Evidence, scope: str) -> bool:
    """Whether some run measured it in more than one round: else there is no curve."""
    return any(len(run.curves.get(f"{scope}.accuracy", ((),))[0]) > 1 for run in evidence.runs)


def said(scope: str) -> str:
    """In words."""
    own = scope.removeprefix(VALIDATION)
    return own if own == scope else f"{own}, validation samples"


def main_curve(evidence: Evidence) -> str:
    """The accuracy that was looked at in every evaluated round."""
    return f"{scopes(evidence)[0] if scopes(evidence) else 'global'}.accuracy"


def by_round(evidence: Evidence, key: str) -> Iterator[Series]:
    """A number of every method over its rounds."""
    yield from _averaged(evidence, lambda run: run.curves.get(key))


def by_bytes(evidence: Evidence, key: str) -> Iterator[Series]:
    """A number of every method over the megabytes sent until then, up and down; references send none."""
    for series in by_round(evidence, key):
        if series.title in evidence.references:
            continue
        runs = [run for run in evidence.runs if run.title == series.title and run.curves.keys() >= BYTES]
        if series.view != MEAN and len(evidence.seeds) > 1:
            runs = [run for run in runs if str(run.seed) == series.view]
        if not runs:
            continue
        sent = np.mean([np.interp(series.x, *_megabytes(run)) for run in runs], axis=0)
        yield series._replace(x=sent)


def _megabytes(run: Run) -> tuple[Array, Array]:
    (when, up), down = run.curves["bytes_up"], run.curves["bytes_down"]
    return when, (up + np.interp(when, *down)) / 1e6


def _averaged(evidence: Evidence, curve: Callable[[Run], Curve | None]) -> Iterator[Series]:
    for title in evidence.titles:
        own = [(run, curve(run)) for run in evidence.runs if run.title == title]
        known = [(run, found) for run, found in own if found is not None]
        for run, (when, values) in known:
            yield Series(title, str(run.seed), when, values)
        if len(evidence.seeds) > 1 and known:
            common = sorted(set.intersection(*(set(when.tolist()) for _, (when, _) in known)))
            table = np.array([values[np.isin(when, common)] for _, (when, values) in known])
            spread = table.std(axis=0, ddof=1) if len(known) > 1 else np.zeros(len(common))
            yield Series(title, MEAN, np.array(common), table.mean(axis=0), spread)


def lines(evidence: Evidence, series: Iterator[Series], hover: str, shape: str = "linear") -> list[Any]:
    """A line for each series, in its method's colour; a band of one standard deviation where there is one."""
    import plotly.graph_objects as go

    traces: list[Any] = []
    for title, view, x, y, spread in series:
        style = evidence.look(title)
        tags = {"method": title, "seed": view}
        keep = thinned(len(x))
        x, y = x[keep], y[keep]
        if spread is not None and len(x) > 1:
            edge = np.concatenate([y + spread[keep], (y - spread[keep])[::-1]])
            band = {"color": style["color"], "width": 0}
            traces.append(
                go.Scatter(
                    x=small(np.concatenate([x, x[::-1]])),
                    y=small(edge),
                    fill="toself",
                    line=band,
                    mode="lines",
                    opacity=0.18,
                    fillcolor=style["color"],
                    hoverinfo="skip",
                    showlegend=False,
                    legendgroup=title,
                    meta=tags,
                )
            )
        traces.append(
            go.Scatter(
                x=small(x),
                y=small(y),
                name=plain(title),
                line={**style, "shape": shape},
                mode="lines" if len(x) > 1 else "markers",
                legendgroup=title,
                meta=tags,
                hovertemplate=f"{plain(title)}<br>{hover}<extra></extra>",
            )
        )
    return traces


def accuracy_cards(evidence: Evidence) -> Iterator[Card]:
    """Accuracy by round and by bytes, a card of each for every scope."""
    percent = {"tickformat": ".0%"}
    for scope in scopes(evidence):
        key, tags = f"{scope}.accuracy", {"scope": scope}
        drawn = lines(evidence, by_round(evidence, key), "round %{x}: %{y:.1%}")
        bands = "Bands are one standard deviation over seeds; of many methods, the one below the pointer. "
        about = bands * (len(evidence.seeds) > 1)
        legend = "Click a method in the legend to hide it, double-click to see it alone."
        yield Card(
            f"Accuracy by round ({said(scope)})",
            about + legend * (len(evidence.titles) > 1),
            figure=figure(drawn, "round", f"accuracy ({said(scope)})", yaxis=percent),
            tags=tags,
        )
        if not (spent := list(by_bytes(evidence, key))):
            continue
        drawn = lines(evidence, iter(spent), "%{x:.2f} MB: %{y:.1%}")
        yield Card(
            f"What accuracy costs ({said(scope)})",
            "Megabytes sent up and down by all clients together until a method reached an accuracy: "
            "further to the left is cheaper.",
            _price(evidence, spent),
            figure=figure(drawn, "MB sent so far", f"accuracy ({said(scope)})", yaxis=percent),
            tags=tags,
        )


def _price(evidence: Evidence, spent: Sequence[Series]) -> list[str]:
    """Megabytes until each method reached what every method reaches, cheapest first."""
    view = views(evidence)[0][0]
    shown = [series for series in spent if series.view == view and len(series.y)]
    if len(shown) < 2:
        return []
    target = min(series.y.max() for series in shown)
    paid = {series.title: series.x[(series.y >= target).argmax()] for series in shown}
    order = sorted(paid, key=lambda title: paid[title])
    prices = ", ".join(f"{title} {paid[title]:,.2f}" for title in order)
    return [f"Megabytes until {target:.1%}, which every method reaches: {prices}."]


def fairness_card(evidence: Evidence) -> Card | None:
    """The distribution of local accuracy over clients."""
    series = []
    for title in evidence.titles:
        pooled = []
        for run in evidence.runs:
            known = np.sort(run.accuracy[~np.isnan(run.accuracy)])
            if run.title == title and len(known):
                pooled.append(known)
                series.append(_ecdf(title, str(run.seed), known))
        if len(evidence.seeds) > 1 and pooled:
            series.append(_ecdf(title, MEAN, np.sort(np.concatenate(pooled))))
    if not series:
        return None
    hover = "%{y:.0%} of clients have at most %{x:.1%}"
    drawn = lines(evidence, iter(series), hover, "hv")
    axis = {"tickformat": ".0%", "range": [-0.02, 1.02]}
    return Card(
        "How evenly clients are served (personal)",
        "The share of clients whose own test accuracy is at most x, seeds pooled: a line further to the "
        "right serves clients better, a steeper one more evenly.",
        figure=figure(drawn, "accuracy of a client (personal)", "share of clients", xaxis=axis, yaxis=axis),
    )


def _ecdf(title: str, view: str, known: Array) -> Series:
    """From 0 at no accuracy to 1 at all of it, a step up at every client."""
    steps = np.arange(len(known) + 1) / len(known)
    return Series(title, view, np.concatenate([[0.0], known, [1.0]]), np.append(steps, 1.0))


def entropy_card(evidence: Evidence) -> Card | None:
    """How even the labels of each round's cohort were."""
    rounds = max(run.rounds for run in evidence.runs)
    window = max(1, rounds // SMOOTH)

    def smooth(run: Run) -> Curve | None:
        when, values = run.curves.get("cohort_entropy", (np.zeros(0), np.zeros(0)))
        if len(values) < window:
            return None
        return when[window - 1 :], np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1)

    drawn = lines(evidence, _averaged(evidence, smooth), "round %{x}: %{y:.2f} bits")
    if not drawn:
        return None
    about, even = f", mean of the last {window} rounds" if window > 1 else "", _even(evidence, rounds)
    return Card(
        "Labels of the cohorts",
        "Entropy of the labels of a round's clients together, without those whose update was declined"
        f"{about}: the more even the labels, the higher, up to log₂ of the number of classes"
        f"{' (thin line)' if even else ''}.",
        figure=figure([*drawn, *even], "round", "cohort entropy (bits)"),
    )


def _even(evidence: Evidence, rounds: int) -> list[Any]:
    """The entropy of even labels, if all runs have as many classes and say how many."""
    import plotly.graph_objects as go

    known = [evidence.labels_of(run) for run in evidence.runs]
    classes = {len(labels.classes) if isinstance(labels, Labels) else 0 for labels in known}
    if len(classes) > 1 or 0 in classes:
        return []
    most = float(np.log2(classes.pop()))
    thin = {"color": OTHERS, "width": 1}
    return [go.Scatter(x=[1, rounds], y=[most] * 2, mode="lines", line=thin, name="even labels")]
