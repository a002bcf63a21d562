"""Charts of a run's groups: how each is served, and where it came from."""

from collections.abc import Iterator

import numpy as np

from fedcohort.report.gather import Ints, Run
from fedcohort.report.page import Card
from fedcohort.report.style import COLOURS, INK, figure, mark, plain, small

POINTS = 200  # most clients that are points beside the boxes of their groups


def group_cards(run: Run) -> Iterator[Card]:
    """Nothing for one group."""
    if len(np.unique(run.group)) > 1 and not np.isnan(run.accuracy).all():
        yield _groups_card(run)
    if origins := splits(run):
        yield _tree_card(run, origins)


def _groups_card(run: Run) -> Card:
    import plotly.graph_objects as go

    numbers, few = np.unique(run.group).tolist(), len(run.clients) <= POINTS
    boxes = []
    for number in numbers:
        own = np.flatnonzero((run.group == number) & ~np.isnan(run.accuracy))
        boxes.append(
            go.Box(
                y=small(run.accuracy[own]),
                name=f"{number}",
                marker={**mark(number), "size": 5},
                boxpoints="all" if few else "outliers",
                pointpos=0,
                jitter=0.4,
                text=[plain(run.clients[k]) for k in own],
                hovertemplate=f"%{{text}} (group {number}): %{{y:.1%}}<extra></extra>",
            )
        )
    return Card(
        "How each group is served (personal)",
        "Accuracy of a group's clients on their own test samples: median, quartiles and range"
        + ("; each point is a client." if few else "."),
        figure=figure(
            boxes,
            "group",
            "accuracy of a client (personal)",
            yaxis={"tickformat": ".0%"},
            xaxis={"type": "category"},
            showlegend=False,
        ),
        tags=run.tags,
    )


def splits(run: Run) -> list[tuple[int, int, int]]:
    """Group, the group it split off, and the round in which that was seen; empty if groups never split.

    Told from the group that each client was in when it trained, so a split shows once its clients train.
    """
    final = np.column_stack([np.full(len(run.group), run.rounds), np.arange(len(run.group)), run.group])
    seen: Ints = np.concatenate([run.visits[:, :3], final])
    if not len(run.visits) or run.visits[run.visits[:, 0] == seen[0, 0], 2].any():
        return []  # there were several from the start
    last: dict[int, int] = {}
    found: dict[int, tuple[int, int, int]] = {}
    for number, client, group in seen[np.argsort(seen[:, 0], kind="stable")].tolist():
        before = last.get(client, 0)
        if group != before and group not in found and group != 0:
            found[group] = (group, before, number)
        last[client] = group
    return list(found.values())


def _tree_card(run: Run, origins: list[tuple[int, int, int]]) -> Card:
    import plotly.graph_objects as go

    members = np.bincount(run.group, minlength=max(group for group, *_ in origins) + 1)
    nodes = [(0, "", "all clients at first"), *((g, str(p), f"seen in round {r}") for g, p, r in origins)]
    tree = go.Icicle(
        ids=[str(group) for group, *_ in nodes],
        labels=[f"group {group}" for group, *_ in nodes],
        parents=[parent for _, parent, _ in nodes],
        values=[int(members[group]) for group, *_ in nodes],
        text=[f"{members[group]} clients at the end<br>{when}" for group, _, when in nodes],
        branchvalues="remainder",
        textinfo="label+text",
        hovertemplate="%{label}<br>%{text}<extra></extra>",
        marker={"colors": [COLOURS[group % len(COLOURS)] for group, *_ in nodes]},
        textfont={"color": [INK[group % len(COLOURS)] for group, *_ in nodes]},
        leaf={"opacity": 1},
        tiling={"orientation": "v"},
    )
    return Card(
        "Where groups came from",
        "Each group below the one it split off; width is the number of clients.",
        figure=figure([tree], "", "", 320, margin={"l": 8, "r": 8, "t": 8, "b": 8}),
        tags=run.tags,
    )
