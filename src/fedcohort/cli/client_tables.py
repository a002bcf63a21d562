"""Newcomers and drifting clients on the terminal."""

from collections.abc import Iterator

import numpy as np
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from fedcohort.cli.console import table_of
from fedcohort.diagnosis.assign import Joining
from fedcohort.diagnosis.drift import Drift
from fedcohort.util.words import counted

NEAREST = 5  # groups shown of each newcomer unless all are asked for
CLIENTS = 15  # drifting clients shown unless all are asked for
COLOURS = {"stable": "green", "moderate": "yellow", "major": "red"}


def joining_page(joining: Joining, everything: bool = False) -> RenderableType:
    """Each newcomer with its nearest groups, and a warning for those that are far from all."""
    return Group(*_joining(joining, everything))


def _joining(joining: Joining, everything: bool) -> Iterator[RenderableType]:
    by_loss = joining.hellinger is None or joining.psi is None or joining.farthest is None
    columns = (">loss",) if by_loss else (">distance", ">Hellinger", ">farthest member", ">PSI")
    table = table_of(f"Joining by {joining.rule}", "client", "", ">group", ">clients", *columns)
    for row, client in enumerate(joining.clients):
        order = np.argsort(joining.value[row], kind="stable").tolist()
        for rank, column in enumerate(order if everything else order[:NEAREST]):
            cells = [f"{joining.value[row, column]:.3f}"]
            if joining.hellinger is not None and joining.psi is not None and joining.farthest is not None:
                numbers = joining.hellinger[row, column], joining.farthest[column], joining.psi[row, column]
                cells += [f"{number:.3f}" for number in numbers]
            table.add_row(
                "" if rank else escape(client),
                "" if rank else "joins",
                str(joining.groups[column]),
                str(joining.members[column]),
                *cells,
                style="dim" if rank else "",
            )
    left = 0 if everything else max(len(joining.groups) - NEAREST, 0)
    if left:
        table.caption = f"and {counted(left, 'group')} farther away"
    yield table
    far = [client for client, is_far in zip(joining.clients, joining.far, strict=True) if is_far]
    if far:
        yield Text(
            f"Far from every group, by labels farther than all of its members: {', '.join(far)}. "
            "The run's models may serve them badly.",
            style="yellow",
        )
    for client, group in joining.nearer.items():
        yield Text(f"By Hellinger distance of labels alone {client} would join group {group}.", style="dim")
    if joining.note:
        yield Text(joining.note, style="dim")


def drift_page(drift: Drift, everything: bool = False) -> RenderableType:
    """The clients that shifted most, and those that should change their group."""
    return Group(*_drift(drift, everything))


def _drift(drift: Drift, everything: bool) -> Iterator[RenderableType]:
    bands = drift.bands
    majors, moderates = bands.count("major"), bands.count("moderate")
    yield Text(
        f"Major shifts (PSI from 0.25): {majors} of {len(drift.clients)} clients; moderate ones (from 0.1): "
        f"{moderates}. Shifts that chance explains are not counted."
    )
    order = np.argsort(-drift.psi, kind="stable").tolist()
    shown = order if everything else order[:CLIENTS]
    table = table_of(
        "Clients, most shifted first",
        "client",
        ">then",
        ">now",
        ">PSI",
        ">chance",
        "shift",
        "classes that moved",
    )
    for row in shown:
        table.add_row(
            escape(drift.clients[row]),
            f"{drift.old[row].sum():,.0f}",
            f"{drift.new[row].sum():,.0f}",
            f"{drift.psi[row]:.3f}",
            f"{drift.chance[row]:.3f}",
            Text(bands[row], style=COLOURS.get(bands[row], "dim")),
            escape(_moved_classes(drift, row)),
        )
    if len(shown) < len(order):
        table.caption = f"and {len(order) - len(shown)} more"
    yield table
    if drift.rule:
        yield _moves(drift)
    for note in drift.notes:
        yield Text(note, style="dim")


def _moves(drift: Drift) -> RenderableType:
    if not drift.moved:
        return Text(f"Nobody needs another group (by {drift.rule}).")
    table = table_of(
        f"Nearer to another group now, by {drift.rule}", "client", ">from", ">to", ">own", ">nearest"
    )
    for name, moved in drift.moved.items():
        numbers = (f"{value:.3f}" for value in (moved.distance, moved.nearest_distance))
        table.add_row(escape(name), str(moved.group), str(moved.nearest), *numbers)
    return table


def _moved_classes(drift: Drift, row: int) -> str:
    """The two classes that add most to PSI, with the change of their shares."""
    top = [c for c in np.argsort(-drift.terms[row], kind="stable")[:2].tolist() if drift.shift[row, c]]
    return ", ".join(f"{drift.classes[c]} {drift.shift[row, c] * 100:+.0f} points" for c in top) or "none"
