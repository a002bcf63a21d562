"""Runs under several conditions: a choice of one of them, and an overview of all."""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from fedcohort.report.curves import by_round, lines, main_curve, views
from fedcohort.report.evidence import Evidence
from fedcohort.report.page import Card, Filter
from fedcohort.report.standings import standings_of
from fedcohort.report.style import figure, plain, plain_each
from fedcohort.runs.outcomes.conditions import in_words, keys_of, order, text
from fedcohort.runs.outcomes.flat import Settings, Value
from fedcohort.runs.outcomes.over_rounds import ACCURACY

PANELS = 12  # most conditions in small charts
WRITTEN = 12  # most columns of a heat-map whose numbers are written
PANEL = 240  # pixels of a panel's height
GAP = 0.14  # between panels, as a share of one
HEADING = 18  # pixels of a line above a panel
WIDE = 2  # panels beside each other


def choices(conditions: Sequence[Settings]) -> tuple[list[Filter], list[dict[str, str]]]:
    """The filters that choose a condition, and the tags of each condition: a filter for every setting if all
    values were run with each other, else one for all settings."""
    values = {key: _values(conditions, key) for key in keys_of(conditions)}
    if prod(map(len, values.values())) == len(conditions):
        filters = [Filter(key, key, [(each, each) for each in own]) for key, own in values.items()]
        return filters, [{key: text(told.get(key)) for key in values} for told in conditions]
    names = [in_words(told) for told in conditions]
    one = Filter("condition", "Condition", [(name, name) for name in names])
    return [one], [{one.key: name} for name in names]


def overview_cards(evidence: Evidence) -> Iterator[Card]:
    """All conditions at a glance."""
    if len(evidence.parts) > 1:
        yield _heat_card(evidence)
        yield _panels_card(evidence)


def _heat_card(evidence: Evidence) -> Card:
    """Methods by conditions; of one method, one setting by the other."""
    conditions = [part.settings for part in evidence.parts]
    known = [_accuracies(part) for part in evidence.parts]
    keys = keys_of(conditions)
    if len(evidence.titles) == 1 and len(keys) == 2:
        rows, columns = (_values(conditions, key) for key in keys)
        cells = np.full((len(rows), len(columns)), np.nan)
        for told, own in zip(conditions, known, strict=True):
            place = rows.index(text(told.get(keys[0]))), columns.index(text(told.get(keys[1])))
            cells[place] = own[evidence.titles[0]]
        down, across = keys
    else:
        rows, down, across = evidence.titles, "", "<br>".join(map(plain, keys))
        columns = ["<br>".join(plain(text(told.get(key))) for key in keys) for told in conditions]
        cells = np.array([[own.get(title, np.nan) for own in known] for title in rows])
    return Card(
        "Every condition at a glance",
        "Global accuracy, the mean over seeds. Methods are ranked within a condition only: choose one above.",
        [_winners(evidence)],
        figure=_heat(cells, rows, columns, down, across),
    )


def _heat(cells: np.ndarray, rows: Sequence[str], columns: Sequence[str], down: str, across: str) -> Any:
    import plotly.graph_objects as go

    written = len(columns) <= WRITTEN
    heat = go.Heatmap(
        z=np.round(100 * cells, 1),
        x=list(range(len(columns))),
        y=plain_each(rows),
        customdata=[list(columns)] * len(rows),
        coloraxis="coloraxis",
        xgap=2,
        ygap=2,
        texttemplate="%{z:.0f}%" if written else None,
        hovertemplate="%{y}, %{customdata}: %{z:.1f}%<extra></extra>",
    )
    levels = across.count("<br>") + 1
    return figure(
        [heat],
        across,
        down,
        150 + 34 * len(rows) + 36 * levels,
        coloraxis={"colorbar": {"ticksuffix": "%"}, "showscale": not written},
        xaxis={
            "tickvals": list(range(len(columns))),
            "ticktext": list(columns),
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False, "title": {"text": down}},
    )


def _panels_card(evidence: Evidence) -> Card:
    """Accuracy by round, a small chart for each condition."""
    shown = evidence.parts[:PANELS]
    tall = -(-len(shown) // WIDE)
    traces: list[Any] = []
    layout: dict[str, Any] = {"annotations": []}
    for number, part in enumerate(shown):
        axis = str(number + 1) if number else ""
        view = views(part)[0][0]
        series = (one for one in by_round(part, main_curve(evidence)) if one.view == view)
        for trace in lines(part, series, "round %{x}: %{y:.1%}"):
            trace.update(xaxis=f"x{axis}", yaxis=f"y{axis}", meta={"method": trace.meta["method"]})
            traces.append(trace)
        heading, x, y = _panel(part.settings, *divmod(number, WIDE), tall, axis)
        layout["annotations"].append(heading)
        layout |= {f"xaxis{axis}": x, f"yaxis{axis}": y}
    _name_once(traces)
    left_out = len(evidence.parts) - len(shown)
    more = f" The first {len(shown)} conditions; {left_out} more are not shown." if left_out else ""
    legend = {"orientation": "h", "y": -40 / (PANEL * tall), "yanchor": "top", "x": 0, "itemwidth": 40}
    return Card(
        "Accuracy by round under each condition (global)",
        f"Means over seeds, with bands of one standard deviation; all on one scale.{more}",
        figure=figure(traces, "", "", 90 + PANEL * tall, legend=legend, **layout),
    )


def _panel(told: Settings, row: int, column: int, tall: int, axis: str) -> tuple[dict[str, Any], ...]:
    """The heading and the axes of a small chart."""
    left, right, top = column / WIDE, (column + 1 - GAP) / WIDE, 1 - row / tall
    words = "<br>".join(plain(in_words({key: value})) for key, value in told.items() if value is not None)
    at = {"xref": "paper", "yref": "paper", "x": left, "y": top, "xanchor": "left", "yanchor": "top"}
    heading = {**at, "text": words, "showarrow": False, "align": "left", "font": {"size": 12}}
    x = {"domain": [left, right], "anchor": f"y{axis}", "title": {"text": ""}}
    y = {
        "domain": [top - (1 - GAP) / tall, top - HEADING * max(len(told), 1) / (PANEL * tall)],
        "anchor": f"x{axis}",
        "matches": "y" if axis else None,
        "tickformat": ".0%",
        "title": {"text": ""},
        "showticklabels": column == 0,
    }
    return heading, x, y


def _name_once(traces: Sequence[Any]) -> None:
    """Each method stands in the legend once, for its lines in all charts."""
    named: set[str] = set()
    for trace in traces:
        if trace.showlegend is not False:
            trace.showlegend = trace.legendgroup not in named
            named.add(trace.legendgroup)


def _winners(evidence: Evidence) -> str:
    """How often each method is the best, and that it is the same everywhere, if it is."""
    first: dict[str, int] = {}
    for part in evidence.parts:
        best = standings_of(part)[0]
        if ACCURACY in best.mean and len(part.titles) > 1:
            first[best.method] = first.get(best.method, 0) + 1
    many = len(evidence.parts)
    if not first:
        return f"{many} conditions."
    if len(first) == 1 and list(first.values()) == [many]:
        return f"{next(iter(first))} has the highest mean under each of the {many} conditions."
    each = ", ".join(
        f"{title} under {count}" for title, count in sorted(first.items(), key=lambda one: -one[1])
    )
    return f"The highest mean of {many} conditions: {each}."


def _accuracies(part: Evidence) -> dict[str, float]:
    return {standing.method: standing.mean.get(ACCURACY, np.nan) for standing in standings_of(part)}


def _values(conditions: Sequence[Settings], key: str) -> list[str]:
    found: dict[str, Value] = {text(told.get(key)): told.get(key) for told in conditions}
    return sorted(found, key=lambda each: order(found[each]))
