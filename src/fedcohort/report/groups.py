"""Charts of a run's groups: how each is served, and where it came from."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from fedcohort.report.evidence import Ints, Run
from fedcohort.report.page import Card
from fedcohort.report.style import COLOURS, INK, figure, mark, plain, small, thinned
from fedcohort.util.words import counted

ROOM = 0.12  # of the width of the tree: enough for words about a group beside its number
LINE = 400  # points of a line, at most
POINTS = 200  # most clients that are points beside the boxes of their groups


class Origin(NamedTuple):
    """Where a group came from."""

    group: int
    parent: int | None  # None: it was there from the first round on
    seen: int  # the round


def group_cards(run: Run) -> Iterator[Card]:
    """Nothing for one group."""
    if len(np.unique(run.group)) > 1 and not np.isnan(run.accuracy).all():
        yield _groups_card(run)
    if origins := splits(run):
        yield _tree_card(run, origins)
    for metric in dict.fromkeys(metric for metric, _ in run.by_group):
        yield _metric_card(run, metric)


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
                text=[plain(run.clients[k]) for k in own] if few else None,
                hovertemplate=f"%{{text}} (group {number}): %{{y:.1%}}<extra></extra>" if few else None,
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


def _metric_card(run: Run, metric: str) -> Card:
    """A number that the grouping tells of each group, round by round."""
    import plotly.graph_objects as go

    lines, positive = [], True
    for (name, number), (when, values) in sorted(run.by_group.items()):
        if name == metric:
            few = thinned(len(when), LINE)
            positive = positive and bool((values > 0).all())
            line = {"color": mark(number)["color"], "width": 1.5}
            x, y = small(when[few]), small(values[few])
            lines.append(go.Scatter(x=x, y=y, mode="lines", name=f"{number}", line=line))
    words = metric.replace("_", " ")
    return Card(
        f"{words.capitalize()} of each group",
        f"What {run.title} told of its groups in every round; colour: group.",
        figure=figure(lines, "round", words, yaxis={"type": "log" if positive else "linear"}),
        tags=run.tags,
    )


def splits(run: Run) -> list[Origin]:
    """Where each group came from, in the order in which they were seen; empty if no group ever split.

    Told from the group that each client was in after it trained, so a split shows once its clients train. One
    that did not train for long may have changed its group twice meanwhile; but all that a group's first
    clients came through are its ancestors, whose numbers grow from one to the next: the last is the origin.
    """
    if not len(run.visits) or run.about.groups_from_start:
        return []  # clients that choose among models from the start split nothing off
    final = np.column_stack([np.full(len(run.group), run.rounds), np.arange(len(run.group)), run.group])
    seen: Ints = np.concatenate([run.visits[:, :3], final])
    seen = seen[np.argsort(seen[:, 0], kind="stable")]
    roots = np.unique([0, *seen[seen[:, 0] == seen[0, 0], 2]]).tolist()
    first = dict.fromkeys(roots, int(seen[0, 0]))
    origin: dict[int, int] = {}
    last = {}  # when each client trained, and in which group
    if len(roots) == 1:
        last = dict.fromkeys(range(len(run.clients)), (0, 0))
    for number, client, group in seen.tolist():
        first.setdefault(group, number)
        when, before = last.get(client, (number, group))
        if before < group and when < first[group]:
            origin[group] = max(before, origin.get(group, 0))
        last[client] = number, group
    parents = {group: None if group in roots else origin.get(group, 0) for group in first}
    known = [Origin(group, parents[group], when) for group, when in first.items()]
    return known if len(known) > len(roots) else []


def _tree_card(run: Run, origins: Sequence[Origin]) -> Card:
    import plotly.graph_objects as go

    numbers = [origin.group for origin in origins]
    members = np.bincount(run.group, minlength=max(numbers) + 1)
    wide = members.copy()  # with all groups that came from it
    for group, parent, _ in sorted(origins, reverse=True):
        if parent is not None:
            wide[parent] += wide[group]
    roomy = {group: bool(wide[group] >= ROOM * wide.max()) for group in numbers}
    said = [f"{counted(members[group], 'client')}<br>round {seen}" for group, _, seen in origins]
    tree = go.Icicle(
        ids=[str(group) for group in numbers],
        labels=[f"group {group}" if roomy[group] else f"{group}" for group in numbers],
        parents=["" if origin.parent is None else str(origin.parent) for origin in origins],
        values=[int(members[group]) for group in numbers],
        text=[text if roomy[group] else "" for group, text in zip(numbers, said, strict=True)],
        hovertext=said,
        branchvalues="remainder",
        textinfo="label+text",
        hovertemplate="group %{id}<br>%{hovertext}<extra></extra>",
        marker={"colors": [COLOURS[group % len(COLOURS)] for group in numbers]},
        textfont={"color": [INK[group % len(COLOURS)] for group in numbers]},
        leaf={"opacity": 1},
        tiling={"orientation": "v"},
    )
    return Card(
        "Where groups came from",
        "Each group below the one it split off, with its clients at the end and the round in which it was "
        "first seen. Width is the number of clients.",
        figure=figure(
            [tree],
            "",
            "",
            320,
            margin={"l": 8, "r": 8, "t": 8, "b": 8},
            uniformtext={"minsize": 10, "mode": "hide"},  # what has no room is told on hover
        ),
        tags=run.tags,
    )
