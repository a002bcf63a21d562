"""The first screen: who should use what, how sure that is, and what to do next, over all seeds."""

from collections.abc import Sequence

import numpy as np

from fedcohort.report.actions import numbered
from fedcohort.report.conclusion import Conclusion
from fedcohort.report.evidence import Evidence
from fedcohort.report.page import Card
from fedcohort.report.standings import is_share
from fedcohort.report.style import COLOURS, OTHERS, figure, plain_each
from fedcohort.runs.outcomes.standings import baseline, spelled
from fedcohort.stats.paired import SEEDS


def summary_cards(evidence: Evidence) -> list[Card]:
    """One verdict, the actions that help most, and all methods in one picture."""
    conclusion = Conclusion(evidence)
    return [
        Card("In short", sentences=[*conclusion.sentences, *numbered(conclusion)]),
        *([_picture(conclusion)] if conclusion.known else []),
    ]


def _picture(conclusion: Conclusion) -> Card:
    """Every method with its interval, and what a constant answer gets."""
    import plotly.graph_objects as go

    standings, evidence = conclusion.standings, conclusion.evidence
    key = conclusion.best.metric
    shown = [standing for standing in standings if not np.isinf(standing.rank)][::-1]  # the best on top
    names = plain_each([standing.method for standing in shown])
    values = np.array([standing.mean.get(key, np.nan) for standing in shown])
    ends = np.array(
        [conclusion.interval(each) or (value, value) for each, value in zip(shown, values, strict=True)]
    )
    constant = baseline(standings).get(key)
    percent = {"tickformat": ".0%", "rangemode": "tozero"} if is_share(key) else {}
    dots = go.Scatter(
        x=values,
        y=names,
        mode="markers",
        marker={
            "size": 11,
            "color": [OTHERS if each.method in evidence.references else COLOURS[0] for each in shown],
        },
        error_x={
            "type": "data",
            "symmetric": False,
            "array": ends[:, 1] - values,
            "arrayminus": values - ends[:, 0],
            "color": OTHERS,
            "thickness": 2,
            "width": 5,
        },
        text=[f"{plain}: {conclusion.value(each)}" for plain, each in zip(names, shown, strict=True)],
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    lines: Sequence[object] = ()
    if constant is not None:
        lines = [
            go.Scatter(
                x=[constant] * len(names),
                y=names,
                mode="lines" if len(names) > 1 else "markers",
                line={"color": OTHERS, "dash": "dash"},
                name="most common answer",
                hovertemplate=f"most common answer: {constant:.1%}<extra></extra>",
            )
        ]
    seeds = len(evidence.seeds)
    how = (
        f"of the mean over {seeds} seeds" if seeds >= SEEDS else "by the number of test samples, not by seeds"
    )
    return Card(
        f"All methods by {spelled(key)}",
        f"Lines are 95 % intervals {how}. Grey: for reference.",
        figure=figure(
            [*lines, dots],
            spelled(key),
            "",
            130 + 34 * len(names),
            xaxis=percent,
            margin={"l": 8, "r": 16, "t": 8, "b": 48},
        ),
    )
