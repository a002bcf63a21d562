"""Charts of one run: what clients hold, who is like whom, who trained when."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from fedcohort.core.state import unpack
from fedcohort.methods.fedgwc import FedGWC
from fedcohort.report.evidence import Evidence, Labels, Run
from fedcohort.report.groups import group_cards
from fedcohort.report.labels import (
    BAR,
    CELLS,
    CLIENTS,
    WIDE,
    client_axis,
    client_map,
    group_marks,
    heat_height,
    label_map,
    left_out,
    rows_allowed,
)
from fedcohort.report.page import Card
from fedcohort.report.style import figure, plain_each, thinned
from fedcohort.runs.run import chosen_state
from fedcohort.stats.label_distances import Array, hellinger_points
from fedcohort.util import checkpoint
from fedcohort.util.words import counted

COLUMNS = 125  # most columns of a participation chart
HOVER = 38  # characters of the page about a client on a map, its place included


def client_cards(evidence: Evidence, run: Run) -> Iterator[Card]:
    """All charts of a run for which it has the numbers."""
    labels = evidence.labels_of(run)
    if isinstance(labels, Labels):
        yield _labels_card(labels, run, evidence.shown)
        yield _map_card(labels, run, evidence.shown)
    else:
        yield Card("Labels", labels, tags=run.tags)
    if (card := _interaction_card(run)) is not None:
        yield card
    if len(run.visits):
        yield participation_card(run, evidence.shown)
    yield from group_cards(run)


def _labels_card(labels: Labels, run: Run, runs: int) -> Card:
    limit = rows_allowed(len(labels.classes), runs)
    several = len(np.unique(run.group)) > 1
    about = "Each row is a client, its groups one below the other. " if several else "Each row is a client. "
    return Card(
        "Labels of the clients",
        about
        + "A cell is the share of the client's training samples of that class."
        + left_out(len(run.clients), limit),
        figure=label_map(labels.counts, run.clients, labels.classes, run.group, limit),
        tags=run.tags,
        note=labels.note,
    )


def _map_card(labels: Labels, run: Run, runs: int) -> Card:
    size, limit = labels.counts.sum(axis=1), rows_allowed(HOVER, runs)
    shown = thinned(len(run.clients), limit)
    return Card(
        "Map of the clients",
        "Clients with similar labels lie close together (principal components of the square roots of label "
        "shares). Colour: group. Area: training samples." + left_out(len(run.clients), limit),
        figure=_map(hellinger_points(labels.counts), run, size, shown),
        tags=run.tags,
        note=labels.note,
    )


def _interaction_card(run: Run) -> Card | None:
    """FedGWC learns from training how clients interact; its last checkpoint remembers it."""
    grouping, everybody = run.grouping, np.arange(len(run.clients))
    if not isinstance(grouping, FedGWC) or not run.complete or len(everybody) > CLIENTS:
        return None
    try:
        last = unpack(checkpoint.load(run.directory)[0], lambda _: {})
        memory = chosen_state(last, run.metrics).grouping
        if len(memory["group"]) != len(everybody):
            return None
        matrix = grouping.matrix(memory, torch.from_numpy(everybody)).numpy()
    except Exception:  # there is no checkpoint, or somebody's tensors are in it: anything may happen
        return None
    return Card(
        "Map of the clients by how they train",
        f"Principal components of the interaction matrix by which {grouping.name} groups. "
        "Colour: group. Area: rounds trained.",
        figure=_map(matrix.T, run, run.trained.astype(float), everybody),
        tags=run.tags,
    )


def _map(points: Array, run: Run, size: Array, shown: np.ndarray) -> Any:
    served = ["accuracy unknown" if np.isnan(a) else f"{a:.0%} right" for a in run.accuracy]
    about = [f"{text}, {counted(count, 'round')}" for count, text in zip(run.trained, served, strict=True)]
    names, about = [run.clients[k] for k in shown], [about[k] for k in shown]
    return client_map(points[shown], names, run.group[shown], size[shown], about)


def participation_card(run: Run, runs: int) -> Card:
    """Who trained when; with many rounds a cell stands for several."""
    import plotly.graph_objects as go

    limit = rows_allowed(COLUMNS // 5, runs)
    order = np.lexsort((run.trained, run.group))
    order = order[thinned(len(order), limit)]
    columns = int(np.clip(CELLS // (runs * len(order)), COLUMNS // 5, COLUMNS))
    width = -(-run.rounds // columns)  # rounds in a cell
    cells = np.rint(100 * shares(run, width)[order]).astype(np.uint8)
    span = "round %{x}" if width == 1 else f"{width} rounds from %{{x}}"
    heat = go.Heatmap(
        z=cells,
        x=1 + width * np.arange(cells.shape[1]),
        y=plain_each(run.clients, order),
        coloraxis="coloraxis",
        hovertemplate=f"client %{{y}}, {span}: trained in %{{z}}%<extra></extra>",
    )
    bar = {**BAR, "ticksuffix": "%"}
    busy = f"A cell is the share of {width} rounds in which" if width > 1 else "A filled cell: in this round"
    return Card(
        "Who trained when",
        f"{busy} the client trained and its update was used.{left_out(len(run.clients), limit)}",
        figure=figure(
            [heat],
            "round",
            "client",
            heat_height(len(order)),
            coloraxis={"cmin": 0, "cmax": max(cells.max(), 1), "showscale": width > 1, "colorbar": bar},
            margin=WIDE if width > 1 else {**WIDE, "t": 16},
            xaxis={"showgrid": False},
            yaxis=client_axis(len(order)),
            **group_marks(run.group[order]),
        ),
        tags=run.tags,
    )


def shares(run: Run, width: int) -> Array:
    """[K, columns]: in what share of each ``width`` rounds a client's update was used."""
    columns = -(-run.rounds // width)
    used = run.visits[run.visits[:, 3] > 0]
    table = np.zeros((len(run.clients), columns))
    np.add.at(table, (used[:, 1], (used[:, 0] - 1) // width), 1)
    span = np.full(columns, width)
    span[-1] = run.rounds - width * (columns - 1)
    return np.minimum(table / span, 1)
