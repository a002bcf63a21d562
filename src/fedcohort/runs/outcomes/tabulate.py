"""Runs as papers tabulate them: a cell for each method and condition, mean, deviation, tests."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedcohort.core.evaluate import VALIDATION
from fedcohort.runs.outcomes.cells import METHOD, TableCell, tested, with_best
from fedcohort.runs.outcomes.conditions import combinations, in_words, joins, keys_of, order, settings, text
from fedcohort.runs.outcomes.flat import Settings
from fedcohort.runs.outcomes.over_rounds import ACCURACY, Curve
from fedcohort.runs.outcomes.results import placed_in
from fedcohort.runs.outcomes.standings import nature
from fedcohort.runs.stored import RunDir, read_result, runs_in
from fedcohort.stats.paired import Paired
from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest
from fedcohort.util.words import counted, some

SEED = "seed"
CELLS = 10_000
NAMED = 5  # cells that a note names


@dataclass(frozen=True)
class PlacedRun:
    """One run: where it stands in a table, and its number."""

    run: RunDir
    settings: Settings  # method, seed, conditions, and what else the table is about
    reference: bool  # no federated learning
    value: float

    @property
    def draw(self) -> tuple[int, str]:
        """What two runs share that can be compared pair by pair: seed and data."""
        return self.run.settings.seed, self.run.environment()["fingerprint"]


@dataclass(frozen=True)
class Tabulated:
    """A table before it has a format."""

    metric: str
    over: str
    rows: list[str]  # the settings that tell rows apart
    columns: list[str]
    cells: list[TableCell]
    against: str | None
    notes: list[str]

    @property
    def seeds(self) -> int:
        """Of the cell that has most."""
        return max(len(cell.values) for cell in self.cells)

    @property
    def tests(self) -> list[Paired]:
        """Each of them once: the same may stand in several cells."""
        return list({id(cell.test): cell.test for cell in self.cells if cell.test is not None}.values())


def tabulate(
    directories: Sequence[Path],
    rows: Sequence[str] = (METHOD,),
    columns: Sequence[str] | None = None,
    metric: str = ACCURACY,
    over: str = "last",
    against: str | None = None,
) -> Tabulated:
    """The complete runs of these directories as a table; a UserError says why they fit in none."""
    summed = _over(over, metric)
    runs, notes = _complete(directories)
    lines, conditions = _lines(runs, [*rows, *(columns or ())])
    if columns is None:
        columns = _default_columns(directories, lines, rows, conditions)
    _refuse_mixing(lines, rows, columns, conditions)
    lines = [replace(line, value=summed(line.run)) for line in lines]
    _refuse_unknown(lines, metric)
    cells = _cells(lines, rows, columns)
    if against is not None:
        cells = tested(cells, against, [*rows, *columns])
    cells = with_best(cells, nature(metric)[0], METHOD in (*rows, *columns))
    notes += _shorter(runs, over) + _fewer(cells) + _tuned(lines, conditions)
    return Tabulated(metric, over, list(rows), list(columns), cells, against, notes)


def _over(over: str, metric: str) -> Callable[[RunDir], float]:
    """How a run becomes one number; NaN where it has none."""
    match = re.fullmatch(r"last(?::(\d{1,9}))?|best", over)
    count = int(match[1]) if match and match[1] else None
    if match is None or count == 0:
        raise UserError(f"--over {over}: write last, best, or last:10 for the mean of the last ten rounds")
    more = nature(metric)[0]
    if over == "best" and more is None:
        raise UserError(f"--over best: of {metric} neither more nor less is better, write last or last:10")

    def value(run: RunDir) -> float:
        if over == "last":
            return (read_result(run.directory) or {}).get(metric, np.nan)
        told = [row for row in run.rows() if row.overall and row.key == metric]
        if not told:
            return float("nan")
        if run.settings.on == "validation" and len(told) == 1 < run.settings.rounds:
            raise UserError(
                f"--over {over}: {run.directory} looked at test samples once, for the round that validation "
                f"samples chose: write --over last or --metric {VALIDATION}{metric}, or run it with "
                "evaluate.on = 'test'"
            )
        curve = Curve.of(told)
        if count is not None:
            return curve.last(count)
        return curve.best() if more else -Curve(curve.rounds, -curve.values).best()

    return value


def _shorter(runs: Sequence[RunDir], over: str) -> list[str]:
    """A note where runs have fewer rounds than the mean is said to be of."""
    asked = int(over.partition(":")[2] or 0)
    few = sorted({run.settings.rounds for run in runs if run.settings.rounds < asked})
    return [f"of runs of fewer than {asked} rounds ({', '.join(map(str, few))}), all count"] if few else []


def _complete(directories: Sequence[Path]) -> tuple[list[RunDir], list[str]]:
    left_out: list[str] = []
    found = runs_in(directories, left_out)
    runs = [run for run in found if run.complete]
    if not runs:
        why = "no run here is complete: wait, or continue with 'fedcohort run --resume'"
        raise UserError(left_out[0] if left_out else f"{directories[0]}: {why}")
    notes = [f"a run is left out: {why}" for why in left_out]
    if waiting := len(found) - len(runs):
        notes.append(f"{waiting} run{'s are' if waiting > 1 else ' is'} not complete, and left out")
    return runs, notes


def _lines(runs: Sequence[RunDir], wanted: Sequence[str]) -> tuple[list[PlacedRun], list[str]]:
    """Every run with all that the table may ask of it, and the conditions."""
    placed = placed_in(runs, wanted)
    told = [settings(run.settings) for run in runs]
    conditions, known = keys_of(each.settings for each in placed), {METHOD, SEED, *keys_of(told)}
    for key in wanted:
        if key not in known:
            raise UserError(f"no run here has a setting {key}{nearest(key, known)}")
    chosen = [key for key in wanted if key not in (METHOD, SEED, *conditions)]
    lines = []
    for run, (method, own), all_ in zip(runs, placed, told, strict=True):
        asked = {METHOD: method, SEED: run.settings.seed, **own, **{key: all_.get(key) for key in chosen}}
        lines.append(PlacedRun(run, asked, run.about.pooled or run.about.silent, np.nan))
    return lines, conditions


def _default_columns(
    directories: Sequence[Path], lines: Sequence[PlacedRun], rows: Sequence[str], conditions: Sequence[str]
) -> list[str]:
    """All conditions of one comparison; those between comparisons are for the user to choose."""
    free = [key for key in conditions if key not in rows]
    if free and len({line.run.directory.resolve().parent for line in lines}) > 1:
        raise UserError(
            f"these runs are of different experiments: {_values(lines, free)}; choose what becomes columns, "
            f"like --cols {','.join(free)}, or name fewer directories"
        )
    return free if METHOD in rows else [*free, *([METHOD] if _several(lines, METHOD) else [])]


def _refuse_mixing(
    lines: Sequence[PlacedRun], rows: Sequence[str], columns: Sequence[str], conditions: Sequence[str]
) -> None:
    named = [*rows, *columns]
    if twice := [key for key in dict.fromkeys(named) if named.count(key) > 1]:
        raise UserError(f"{twice[0]} is named twice among --rows and --cols, name it once")
    free = [key for key in (METHOD, *conditions) if key not in named and _several(lines, key)]
    if free:
        raise UserError(
            f"a cell would mix runs that differ: {_values(lines, free)}; add to --rows or --cols, like "
            f"--cols {','.join([*columns, *free])}, or name fewer directories"
        )


def _several(lines: Sequence[PlacedRun], key: str) -> bool:
    return len({text(line.settings[key]) for line in lines if key in line.settings}) > 1


def _values(lines: Sequence[PlacedRun], keys: Sequence[str]) -> str:
    """``partition.alpha (0.1, 0.5), rounds (2, 4)``."""

    def named(key: str) -> str:
        there = [line.settings[key] for line in lines if key in line.settings]
        several = {text(value): order(value) for value in there}
        return f"{key} ({', '.join(sorted(several, key=lambda value: several[value])[:NAMED])})"

    return some(keys, NAMED, named)


def _refuse_unknown(lines: Sequence[PlacedRun], metric: str) -> None:
    known = {key for line in lines for key in read_result(line.run.directory) or {}}
    if metric not in known:
        raise UserError(f"no run here has a number {metric}{nearest(metric, known)}")


def _cells(lines: Sequence[PlacedRun], rows: Sequence[str], columns: Sequence[str]) -> list[TableCell]:
    """Row by row; methods in the order in which they were asked for."""
    methods = list(dict.fromkeys(text(line.settings[METHOD]) for line in lines))

    def axis(keys: Sequence[str]) -> list[Settings]:
        found = combinations([_only(line.settings, keys) for line in lines])
        return sorted(
            found,
            key=lambda told: [
                (False, methods.index(text(told[key])), "") if key == METHOD else order(told.get(key))
                for key in keys
            ],
        )

    down, across = axis(rows), axis(columns)
    if len(down) * len(across) > CELLS:
        raise UserError(f"a table of {len(down) * len(across):,} cells is no overview: name fewer settings")
    cells = []
    for row in down:
        own = [line for line in lines if joins(_only(line.settings, rows), row)]
        for column in across:
            here = [line for line in own if joins(_only(line.settings, columns), column)]
            if here:
                runs = frozenset(line.run.directory for line in here)
                cells.append(
                    TableCell(row, column, _by_draw(here), runs, all(line.reference for line in here))
                )
    return cells


def _only(own: Settings, keys: Sequence[str]) -> Settings:
    return {key: own[key] for key in keys if key in own}


def _by_draw(lines: Sequence[PlacedRun]) -> dict[tuple[int, str], float]:
    """A number for each seed; the same run in two directories counts once."""
    found: dict[tuple[int, str], PlacedRun] = {}
    for line in lines:
        other = found.setdefault(line.draw, line)
        if not np.array_equal(other.value, line.value, equal_nan=True):
            raise UserError(
                f"{other.run.directory} and {line.run.directory} are one run with different numbers: name "
                "one of them"
            )
    return {draw: line.value for draw, line in found.items() if not np.isnan(line.value)}


def _fewer(cells: Sequence[TableCell]) -> list[str]:
    """Which cells rest on fewer seeds than others."""
    most = max(len(cell.values) for cell in cells)
    few = [cell for cell in cells if len(cell.values) < most]
    if not few:
        return []
    named = [
        f"{in_words(cell.settings)} ({', '.join(str(seed) for seed, _ in cell.values) or 'none'})"
        for cell in few[:NAMED]
    ]
    more = f" and {counted(len(few) - NAMED, 'cell')} more" if len(few) > NAMED else ""
    return [f"fewer than {most} seeds: {'; '.join(named)}{more}"]


def _tuned(lines: Sequence[PlacedRun], conditions: Sequence[str]) -> list[str]:
    """How clients train, where methods have settings of their own."""
    told = [settings(line.run.settings) for line in lines]
    notes = []
    for key in keys_of(told):
        if not key.startswith("local.") or key in conditions:
            continue
        by_method: dict[str, set[str]] = {}
        for line, own in zip(lines, told, strict=True):
            by_method.setdefault(text(line.settings[METHOD]), set()).add(text(own.get(key)))
        if len(set(map(frozenset, by_method.values()))) > 1:
            each = ", ".join(f"{'/'.join(sorted(own))} with {name}" for name, own in by_method.items())
            notes.append(f"{key} is a method's own: {each}")
    return notes
