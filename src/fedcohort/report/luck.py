"""Every client against what luck allows: a funnel plot, as hospitals are compared (Spiegelhalter 2005)."""

from typing import Any

import numpy as np

from fedcohort.report.evidence import Ints
from fedcohort.report.labels import left_out, rows_allowed
from fedcohort.report.page import Card
from fedcohort.report.service import Service
from fedcohort.report.style import OTHERS, figure, plain, small, thinned
from fedcohort.stats.label_distances import Array

GOOD = {"color": "#0072B2", "size": 8, "opacity": 0.85}
BAD = {"color": "#D55E00", "size": 10, "symbol": "diamond"}
NAMED = 4  # of the worst served clients, whose names are written beside them
POINT = 36  # characters of the page that a client takes
TICKS = [number * 10**power for power in range(7) for number in (1, 2, 5)]


def luck_card(service: Service, runs: int) -> Card:
    """Test samples, accuracy, and where luck ends; ``runs`` are those that the page has to show."""
    run, tested = service.run, service.tested
    few = tested[thinned(len(tested), rows_allowed(POINT, runs))]
    others = few[~np.isin(few, service.bad)]
    named = np.array(service.bad[: len(few)], dtype=np.int64)
    size = run.test_size[tested]
    wide = np.geomspace(max(size.min() / 1.2, 0.8), size.max() * 1.2, 80)
    traces = [
        _line(wide, np.full(len(wide), service.overall), "all clients together", "dash"),
        _line(wide, _shown(service.limit(wide)), "luck ends here", "solid"),
        _points(service, others, "client", GOOD),
        _points(service, named, "client served worse than luck explains", BAD),
    ]
    ticks = [tick for tick in TICKS if wide[0] <= tick <= wide[-1]]
    samples = {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,}" for tick in ticks]}
    return Card(
        "Every client, and what luck allows",
        "The fewer test samples a client has, the more its accuracy may be luck: below the line it is not."
        + left_out(len(tested), len(few)),
        figure=figure(
            [trace for trace in traces if len(trace.x)],
            "test samples of the client",
            "its accuracy (personal)",
            xaxis=samples,
            yaxis={"tickformat": ".0%", "range": [-0.03, 1.05]},
        ),
        tags=run.tags,
    )


def _shown(limit: Array) -> Array:
    return np.where(limit < 0, np.nan, limit)


def _line(x: Array, y: Array, name: str, dash: str) -> Any:
    import plotly.graph_objects as go

    line = {"color": OTHERS, "width": 1.5, "dash": dash}
    return go.Scatter(x=small(x), y=small(y), mode="lines", name=name, line=line, hoverinfo="skip")


def _points(service: Service, clients: Ints, name: str, marker: dict[str, Any]) -> Any:
    """The clients as points; the worst of those who are badly served with their names."""
    import plotly.graph_objects as go

    run, bad = service.run, set(service.bad[:NAMED])
    names = [plain(run.clients[client]) for client in clients]
    beside = [text if client in bad else "" for client, text in zip(clients.tolist(), names, strict=True)]
    return go.Scatter(
        x=small(run.test_size[clients]),
        y=small(run.accuracy[clients]),
        mode="markers+text" if any(beside) else "markers",
        name=name,
        marker=marker,
        hovertext=names,
        text=beside if any(beside) else None,
        textposition="middle right",
        hovertemplate="%{hovertext}: %{y:.0%} of %{x} test samples<extra></extra>",
    )
