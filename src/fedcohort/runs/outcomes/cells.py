"""Cells of a table: a method under a condition, tested against another method, and the best of them."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedcohort.runs.outcomes.conditions import text
from fedcohort.runs.outcomes.flat import Settings
from fedcohort.runs.outcomes.standings import deviation
from fedcohort.stats.paired import SEEDS, Paired, holm, paired
from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest

METHOD = "method"


@dataclass(frozen=True)
class TableCell:
    """One method under one condition."""

    row: Settings
    column: Settings
    values: dict[tuple[int, str], float]  # by seed and data
    runs: frozenset[Path]  # whose values these are
    reference: bool
    best: bool = False
    test: Paired | None = None  # against the chosen method, its p adjusted; None: not tested

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())

    @property
    def std(self) -> float:
        return deviation(list(self.values.values()))

    @property
    def settings(self) -> Settings:
        """Of row and column."""
        return {**self.row, **self.column}

    @property
    def conditions(self) -> tuple[str, ...]:
        """All of them but the method."""
        return tuple(f"{key}={text(value)}" for key, value in sorted(self.settings.items()) if key != METHOD)


def tested(cells: Sequence[TableCell], against: str, keys: Sequence[str]) -> list[TableCell]:
    """Every method against one under the same conditions, on the seeds that both have; p adjusted by Holm
    for all tests of the table. The same runs may stand under several values of what their methods do not
    have: they are tested once."""
    if METHOD not in keys:
        raise UserError(f"--against {against}: methods are neither rows nor columns here, add --rows method")
    if against not in (known := {str(cell.settings[METHOD]) for cell in cells}):
        raise UserError(f"--against {against}: no such method here{nearest(against, known)}")
    theirs = {cell.conditions: cell for cell in cells if cell.settings[METHOD] == against}
    compared: dict[int, tuple[frozenset[Path], frozenset[Path]]] = {}  # cells, and the runs of both methods
    found: dict[tuple[frozenset[Path], frozenset[Path]], Paired] = {}
    for number, cell in enumerate(cells):
        other = theirs.get(cell.conditions)
        common = [draw for draw in cell.values if other is not None and draw in other.values]
        if other is None or other is cell or len(common) < SEEDS:
            continue
        ours, base = ([each.values[draw] for draw in common] for each in (cell, other))
        if np.isfinite([*ours, *base]).all():
            compared[number] = cell.runs, other.runs
            found[cell.runs, other.runs] = paired(ours, base)
    adjusted = holm([test.p for test in found.values()])
    tests = {runs: test._replace(p=p) for (runs, test), p in zip(found.items(), adjusted, strict=True)}
    return [
        replace(cell, test=tests[compared[number]] if number in compared else None)
        for number, cell in enumerate(cells)
    ]


def with_best(cells: Sequence[TableCell], more: bool | None, methods: bool) -> list[TableCell]:
    """The best method under each condition, or, of one method, the best of each column; never a reference."""
    groups: dict[tuple[str, ...], list[TableCell]] = {}
    for cell in cells:
        key = cell.conditions if methods else tuple(map(text, cell.column.values()))
        if cell.values and not cell.reference:
            groups.setdefault(key, []).append(cell)
    best: set[int] = set()
    for group in groups.values() if more is not None else ():
        means = [round(cell.mean, 9) for cell in group]
        top = max(means) if more else min(means)
        if len(set(means)) > 1:
            best |= {id(cell) for cell, mean in zip(group, means, strict=True) if mean == top}
    return [replace(cell, best=id(cell) in best) for cell in cells]
