"""The page of what tuning tried: for each method and setting, how well which value did."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedcohort.report import write_page
from fedcohort.report.page import Card, Filter, Page, Tab, TextTable
from fedcohort.report.style import COLOURS, figure, plain
from fedcohort.runs.tuning.halving import Trial
from fedcohort.runs.tuning.search import LR
from fedcohort.runs.tuning.tuning import Tuning
from fedcohort.util.words import counted

PAGE = "tuned.html"


def write_tuned(tuning: Tuning, trials: Sequence[Trial]) -> Path:
    """In the directory of the tuning."""
    titles = [method.title for method in tuning.experiment.methods]
    cards = [_best(tuning, trials, titles)]
    for method, title in enumerate(titles):
        own = [trial for trial in trials if trial.method == method]
        cards += [_card(title, key, own, tuning) for key in tuning.halving.searches[method].space]
    rungs = ", ".join(map(str, tuning.halving.rungs))
    subtitle = (
        f"{tuning.experiment.name} · {len(trials)} trials, compared after {rungs} rounds on held-out data"
    )
    filters = (Filter("method", "Method", [(title, title) for title in titles]),)
    return write_page(
        Page("fedcohort tuning", subtitle, (Tab("tried", "Tried", cards, filters),)), tuning.home / PAGE
    )


def _best(tuning: Tuning, trials: Sequence[Trial], titles: Sequence[str]) -> Card:
    rows = []
    for trial in tuning.best(trials):
        values = ", ".join(f"{key} = {value:g}" for key, value in trial.point.items()) or "as in the file"
        rows.append((titles[trial.method], f"{trial.score:.1%}", str(trial.rounds), values))
    about = "Accuracy on rows held out of the clients' training data; the test rows were not looked at."
    return Card("Best values", about, table=TextTable(("method", "accuracy", "rounds", "values"), rows))


def _card(title: str, key: str, trials: Sequence[Trial], tuning: Tuning) -> Card:
    """One setting of a method: a point a trial, in the colour of how far it went."""
    import plotly.graph_objects as go

    halving = tuning.halving
    where, _ = halving.searches[trials[0].method].space[key]
    traces: list[Any] = []
    for colour, rounds in zip(COLOURS, halving.rungs, strict=False):
        some = [trial for trial in trials if trial.rounds == rounds]
        values = [tuning.values(trial) for trial in some]
        traces.append(
            go.Scatter(
                x=[own[key] for own in values],
                y=[trial.score for trial in some],
                mode="markers",
                name=f"{'given up after ' * (rounds < halving.length)}{counted(rounds, 'round')}",
                marker={
                    "color": colour,
                    "size": 10,
                    "symbol": ["diamond" if trial.number == 0 else "circle" for trial in some],
                },
                hovertext=[plain(", ".join(f"{k}={v:g}" for k, v in own.items())) for own in values],
                hovertemplate="%{y:.1%}: %{hovertext}<extra></extra>",
            )
        )
    what = "the clients' learning rate" if key == LR else key
    axis = {"type": "log"} if where.by_magnitude else {}
    chart = figure(traces, plain(what), "accuracy on held-out data", xaxis=axis, yaxis={"tickformat": ".0%"})
    about = "A point for each trial; the diamond has the file's own values."
    return Card(f"{title}: {what}", about, figure=chart, tags={"method": title})
