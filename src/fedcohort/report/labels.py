"""Charts of label counts: who holds what, how far from the federation, and who is like whom."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.report.page import Card
from fedcohort.report.style import DIVERGING, OTHERS, figure, mark, plain, plain_each, small, thinned
from fedcohort.stats.label_distances import Array, proportions, psi, psi_signed_terms, wpsi

CLIENTS = 1000  # most clients in a chart
CELLS = 900_000  # characters of all charts of a kind on one page
LABEL = 12  # characters of a client's name, about
NAMED = 60  # most clients whose names are written beside a heat-map
UNUSUAL = 40  # clients whose PSI is shown class by class
GROUPS = 24  # most groups with a colour of their own
BAR = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "len": 0.5}  # of colours
WIDE = {"l": 56, "r": 64, "t": 56, "b": 48}  # room for that bar, and for groups' numbers


def rows_allowed(columns: int, charts: int) -> int:
    """How many clients each of several charts may show, so that the page stays small; ``columns`` is how many
    characters of the page one takes beside its name."""
    return int(np.clip(CELLS // max((columns + LABEL) * charts, 1), 50, CLIENTS))


def left_out(clients: int, limit: int) -> str:
    """What to say of a chart that cannot show everybody."""
    return f" Shown are {limit:,} of {clients:,} clients, evenly spread." if clients > limit else ""


def label_map(
    counts: Array, clients: Sequence[str], classes: Sequence[str], group: NDArray[np.int64], limit: int
) -> Any:
    """Each client's shares of the classes; clients of a group are neighbours, most even first within it."""
    import plotly.graph_objects as go

    share = np.nan_to_num(proportions(counts))
    order = np.lexsort((share.max(axis=1), share.argmax(axis=1), group))
    order = order[thinned(len(order), limit)]
    cells = np.rint(100 * share[order]).astype(np.uint8)
    hover = "client %{y}, class %{x}: %{z}% of its samples<extra></extra>"
    heat = go.Heatmap(z=cells, x=plain_each(classes), y=plain_each(clients, order), coloraxis="coloraxis")
    heat.update(hovertemplate=hover, xgap=1 if len(classes) <= 30 else 0)
    return figure(
        [heat],
        "class",
        "client",
        heat_height(len(order)),
        coloraxis={"cmin": 0, "cmax": 100, "colorbar": {**BAR, "ticksuffix": "%"}},
        margin=WIDE,
        xaxis={"type": "category", "showgrid": False},
        yaxis=client_axis(len(order)),
        **group_marks(group[order]),
    )


def group_marks(group: NDArray[np.int64]) -> dict[str, Any]:
    """Lines between groups of neighbouring rows, and their numbers; nothing for one group or very many."""
    starts = np.flatnonzero(np.diff(group)) + 1
    if not 0 < len(starts) < GROUPS:
        return {}
    edges = [0, *starts.tolist(), len(group)]
    lines = [
        {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": edge - 0.5, "y1": edge - 0.5}
        for edge in edges[1:-1]
    ]
    texts = [
        {
            "xref": "paper",
            "x": 1,
            "y": (first + last - 1) / 2,
            "text": f" group {group[first]}",
            "showarrow": False,
            "xanchor": "left",
            "font": {"size": 11},
        }
        for first, last in pairwise(edges)
        if last - first >= len(group) / 40
    ]
    return {"shapes": lines, "annotations": texts}


def client_axis(rows: int) -> dict[str, Any]:
    named = rows <= NAMED
    title = {"text": "" if named else "client"}
    return {
        "type": "category",
        "autorange": "reversed",
        "showticklabels": named,
        "dtick": 1,
        "title": title,
        "showgrid": False,
    }


def heat_height(rows: int) -> int:
    return int(np.clip(120 + 16 * rows, 300, 760))


def client_map(
    points: Array, clients: Sequence[str], group: NDArray[np.int64], size: Array, hover: Sequence[str]
) -> Any:
    """The two directions in which ``points`` (a row per client) differ most; area is ``size``."""
    import plotly.graph_objects as go

    known = ~np.isnan(points).any(axis=1)
    centred = points[known] - points[known].mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    place = np.full((len(points), 2), np.nan)
    axes = min(2, len(scale))
    place[known] = 0
    place[np.flatnonzero(known)[:, None], np.arange(axes)] = (left * scale)[:, :axes]
    explained = scale**2 / max((scale**2).sum(), 1e-300)
    widest = 28 if len(points) <= 100 else 16
    diameter = 6 + (widest - 6) * np.sqrt(size / max(size.max(), 1))
    traces = []
    for number in np.unique(group[known])[:GROUPS].tolist():
        own = np.flatnonzero(known & (group == number))
        traces.append(
            go.Scatter(
                x=small(place[own, 0]),
                y=small(place[own, 1]),
                mode="markers",
                name=f"group {number}",
                marker={**mark(number), "size": small(diameter[own]), "opacity": 0.75},
                text=[f"{plain(clients[client])}: {hover[client]}" for client in own.tolist()],
                hovertemplate=f"%{{text}}, group {number}<extra></extra>",
            )
        )
    titles = [f"direction {axis + 1} ({explained[axis]:.0%})" if axis < axes else "" for axis in (0, 1)]
    bare = {"showticklabels": False, "zeroline": False}
    return figure(traces, titles[0], titles[1], 460, xaxis=bare, yaxis=bare, showlegend=len(traces) > 1)


def _psi_traces(terms: Array, total: Array, names: list[str], classes: list[str]) -> list[Any]:
    """A heat-map of the classes' terms, and a bar for their sum."""
    import plotly.graph_objects as go

    heat = go.Heatmap(
        z=small(terms),
        x=classes,
        y=names,
        coloraxis="coloraxis",
        xgap=1 if len(classes) <= 30 else 0,
        hovertemplate="client %{y}, class %{x}: %{z:+.2f}<extra></extra>",
    )
    bars = go.Bar(
        x=small(total),
        y=names,
        xaxis="x2",
        orientation="h",
        marker={"color": OTHERS},
        showlegend=False,
        hovertemplate="client %{y}: PSI %{x:.2f}<extra></extra>",
    )
    return [heat, bars]


def psi_card(counts: Array, clients: Sequence[str], classes: Sequence[str], tags: dict[str, str]) -> Card:
    """The clients farthest from the federation, and the classes that set them apart."""
    terms, total = np.nan_to_num(psi_signed_terms(counts)), np.nan_to_num(psi(counts))
    most = np.argsort(-total, kind="stable")[:UNUSUAL]
    names = plain_each(clients, most)
    reach = float(np.abs(terms[most]).max())
    traces = _psi_traces(terms[most], total[most], names, plain_each(classes))
    left = len(clients) - len(most)
    return Card(
        "How far from the federation (PSI)",
        "The population stability index of a client's labels against everybody's (bars, right) is the sum of "
        "a term for each class (left): blue where the client holds more of the class, orange where less. "
        f"Weighted by samples they average {wpsi(counts):.3g} (WPSI); credit scoring calls more than 0.25 a "
        "large shift."
        + (f" The {len(most)} most unusual clients; {left:,} more are nearer." if left else ""),
        figure=figure(
            traces,
            "class",
            "",
            130 + 18 * len(most),
            coloraxis={"cmin": -reach, "cmax": reach, "colorscale": DIVERGING, "colorbar": BAR},
            xaxis={"type": "category", "domain": [0, 0.72], "showgrid": False},
            xaxis2={"title": {"text": "PSI"}, "domain": [0.75, 1]},
            yaxis=client_axis(len(most)),
            margin=WIDE,
        ),
        tags=tags,
    )
