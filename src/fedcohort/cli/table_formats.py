"""A table of runs as text, CSV, LaTeX or Markdown."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from itertools import groupby

from rich.text import Text

from fedcohort.cli.console import PlainConsole, table_of
from fedcohort.runs.outcomes.cells import TableCell
from fedcohort.runs.outcomes.conditions import in_words, text
from fedcohort.runs.outcomes.flat import Settings
from fedcohort.runs.outcomes.standings import nature
from fedcohort.runs.outcomes.tabulate import Tabulated
from fedcohort.stats.intervals import LEVEL
from fedcohort.stats.paired import SEEDS
from fedcohort.util.names import in_markdown, safe_name
from fedcohort.util.words import counted

SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "–": "--", **{sign: f"\\{sign}" for sign in "&%$#_{}"}, **{sign: f"${sign}$" for sign in "<>|"},
}  # fmt: skip
UNITS = {"percent": " in %", "megabytes": " in MB"}
MARK = "*"
WIDE = 10_000  # characters: what a terminal cannot show it wraps


def as_text(table: Tabulated) -> str:
    """For a terminal, where the best is bold. Above each column are values of the settings that stand above
    the rows; a wide table is not cut."""
    shown = table_of(None)
    above = "".join(f"{safe_name(key)}\n" for key in table.columns)
    for place, key in enumerate(map(safe_name, table.rows)):
        shown.add_column(Text((re.sub(".", "", above) if place else above) + key))
    for column in _columns(table):
        values = [text(column.get(key)) for key in table.columns]
        shown.add_column(Text("\n".join([*values, " "]) if values else table.metric), justify="right")
    for row, cells in _lines(table):
        numbers = [Text(_number(table, cell), style="bold" if cell and cell.best else "") for cell in cells]
        shown.add_row(*(Text(word) for word in _heads(table, row)), *numbers)
    console = PlainConsole(width=WIDE, highlight=False)
    with console.capture() as captured:
        console.print(caption(table), shown, *footnotes(table), sep="\n", markup=False)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().split("\n"))


def as_csv(table: Tabulated) -> str:
    """A line for each cell, with numbers as they are; ``p`` is adjusted, and empty without a test."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    keys = [*table.rows, *table.columns]
    writer.writerow([*map(safe_name, keys), "metric", "over", "mean", "std", "seeds", "best", "p"])
    for cell in table.cells:
        told = [cell.settings.get(key) for key in keys]
        own = ["" if value is None else text(value) for value in told]
        mean, std = (cell.mean, cell.std) if cell.values else (math.nan, math.nan)
        p = math.nan if cell.test is None else cell.test.p
        known = ["" if math.isnan(value) else value for value in (mean, std, p)]
        writer.writerow(
            [*own, table.metric, table.over, *known[:2], len(cell.values), int(cell.best), known[2]]
        )
    return out.getvalue().rstrip("\n")


def as_markdown(table: Tabulated) -> str:
    heads = [*map(safe_name, table.rows), *(in_words(column) or table.metric for column in _columns(table))]
    lines = [heads, ["---"] * len(table.rows) + ["---:"] * (len(heads) - len(table.rows))]
    for row, cells in _lines(table):
        numbers = [
            (f"**{_number(table, cell)}**" if cell and cell.best else _number(table, cell)) for cell in cells
        ]
        lines.append([*_heads(table, row), *numbers])
    written = [f"| {' | '.join(map(in_markdown, line))} |" for line in lines]
    return "\n\n".join([caption(table), "\n".join(written), *map(in_markdown, footnotes(table))])


def as_latex(table: Tabulated) -> str:
    """With booktabs; a line of headings for each setting that tells columns apart."""
    columns, left = _columns(table), len(table.rows)
    body = []
    for row, cells in _lines(table):
        numbers = [_latex_number(table, cell) for cell in cells]
        body.append(" & ".join([*map(latex, _heads(table, row)), *numbers]) + r" \\")
    words = " ".join([f"{caption(table)}.", *(f"{note}." for note in footnotes(table))])
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex(words)}}}",
            rf"\begin{{tabular}}{{{'l' * left}{'r' * len(columns)}}}",
            r"\toprule",
            *_latex_heads(table, columns),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


FORMATS: dict[str, Callable[[Tabulated], str]] = {
    "text": as_text,
    "csv": as_csv,
    "latex": as_latex,
    "markdown": as_markdown,
}


def latex(words: str) -> str:
    """As LaTeX prints it; a name is never a command."""
    return "".join(SPECIAL.get(sign, sign) for sign in words)


def caption(table: Tabulated) -> str:
    """What the numbers are."""
    when = "after the last round"
    if table.over == "best":
        when = "in the best round, chosen by the test samples"
    elif table.over != "last":
        when = f"mean of the last {counted(int(table.over.partition(':')[2]), 'round')}"
    seeds = f"mean ± standard deviation of {table.seeds} seeds" if table.seeds > 1 else "one seed"
    best = "; the best in bold" if any(cell.best for cell in table.cells) else ""
    return f"{table.metric}{UNITS.get(nature(table.metric)[1], '')}, {when} ({seeds}{best})"


def footnotes(table: Tabulated) -> list[str]:
    """How differences were tested, and what a reader has to know besides."""
    notes = list(table.notes)
    if table.against is None:
        return notes
    if not (tests := table.tests):
        return [f"Nothing is tested against {table.against}: fewer than {SEEDS} common seeds", *notes]
    fewest, most = (pick(test.seeds for test in tests) for pick in (min, max))
    seeds = f"{most} seeds" if fewest == most else f"{fewest} to {most} seeds"
    how = f"paired t-tests over {seeds}, adjusted by Holm for {len(tests)} test{'s' * (len(tests) > 1)}"
    found = any(test.p < LEVEL for test in tests)
    what = f"{MARK} differs from {table.against}" if found else f"No difference from {table.against}"
    return [f"{what} with p < {LEVEL} ({how})", *notes]


def _columns(table: Tabulated) -> list[Settings]:
    return list({in_words(cell.column): cell.column for cell in table.cells}.values())


def _lines(table: Tabulated) -> list[tuple[Settings, list[TableCell | None]]]:
    """Row by row, with nothing where no run is."""
    columns = _columns(table)
    lines = []
    for _, group in groupby(table.cells, key=lambda cell: id(cell.row)):
        cells = list(group)
        by_column = {in_words(cell.column): cell for cell in cells}
        lines.append((cells[0].row, [by_column.get(in_words(column)) for column in columns]))
    return lines


def _heads(table: Tabulated, row: Settings) -> list[str]:
    return [text(row.get(key)) for key in table.rows]


def _number(table: Tabulated, cell: TableCell | None) -> str:
    if cell is None or not cell.values:
        return "–"
    kind, several = nature(table.metric)[1], table.seeds > 1
    scale, digits = {"percent": (100, 1), "megabytes": (1e-6, 2)}.get(kind, (1, 3))
    spread = f" ± {scale * cell.std:.{digits}f}" if several and len(cell.values) > 1 else ""
    mark = MARK if cell.test is not None and cell.test.p < LEVEL else ""
    return f"{scale * cell.mean:.{digits}f}{spread}{mark}"


def _latex_number(table: Tabulated, cell: TableCell | None) -> str:
    plain = _number(table, cell)
    marked = latex(plain.rstrip(MARK)) + (f"$^{{{MARK}}}$" if plain.endswith(MARK) else "")
    return rf"\textbf{{{marked}}}" if cell is not None and cell.best else marked


def _latex_heads(table: Tabulated, columns: Sequence[Settings]) -> list[str]:
    left, lines = len(table.rows), []
    names = [latex(safe_name(key)) for key in table.rows]
    if not table.columns:
        return [" & ".join([*names, latex(table.metric)]) + r" \\"]
    for depth, key in enumerate(table.columns, 1):
        words, rules, start = [], [], left + 1
        for _, group in groupby(columns, key=lambda told: [told.get(k) for k in table.columns[:depth]]):
            below = list(group)
            value = below[0].get(key)
            name = latex(text(None) if value is None else f"{safe_name(key)} = {text(value)}")
            words.append(name if len(below) == 1 else rf"\multicolumn{{{len(below)}}}{{c}}{{{name}}}")
            rules.append(rf"\cmidrule(lr){{{start}-{start + len(below) - 1}}}")
            start += len(below)
        last = depth == len(table.columns)
        lines.append(" & ".join([*(names if last else [""] * left), *words]) + r" \\")
        lines += [] if last else [" ".join(rules)]
    return lines
