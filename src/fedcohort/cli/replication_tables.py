"""What ``replicate`` shows: which tables there are, and one of them with the paper's numbers and ours."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from fedcohort.cli.board import duration
from fedcohort.cli.console import table_of
from fedcohort.cli.tables import messages, results
from fedcohort.runs.outcomes.standings import deviation
from fedcohort.runs.replication.folders import RESULTS, UNITS, Folder, Published
from fedcohort.runs.replication.replication import Replication, stale
from fedcohort.runs.replication.results import ResultRow, read_results
from fedcohort.runs.replication.verdicts import Judged, by_seed, interval, judge
from fedcohort.util.words import counted


def listing(asked: Replication) -> dict[str, Any]:
    """A table at a scale, and how far it is."""
    known = asked.results
    have = Counter(result.cell for result in known)
    seeds = len(asked.experiment.seeds) if asked.folder.study is None else max(have.values(), default=0)
    done = [cell for cell in asked.folder.cells if have[cell] >= max(1, seeds)]
    words = Counter(each.verdict for each in judge(asked.folder, known))
    paper, table = asked.folder.name.split("/")
    return {
        "paper": paper,
        "table": table,
        "scale": asked.scale,
        "about": asked.folder.about,
        "data": asked.data,
        "cells": len(asked.folder.cells),
        "done": len(done),
        "seeds": seeds,
        "runs": len(asked.folder.cells) * max(1, seeds),
        "runs_done": sum(min(have[cell], max(1, seeds)) for cell in asked.folder.cells),
        "runs_left": len(asked.open),
        "seconds_left": _known(asked.seconds_left),
        "verdict": ", ".join(f"{number} {word}" for word, number in words.items()),
    }


def show_listing(entries: Sequence[dict[str, Any]]) -> None:
    """A table of each paper's tables, with the data that they need."""
    for paper in dict.fromkeys(entry["paper"] for entry in entries):
        table = _table(("table", "scale", "cells", "runs", "left", "verdicts"), wraps=("verdicts",))
        own = [entry for entry in entries if entry["paper"] == paper]
        for entry in own:
            seconds = entry["seconds_left"]
            left = "not probed" if seconds is None else duration(seconds) if entry["runs_left"] else ""
            numbers = [
                f"{entry[done]} of {entry[all_]}" for done, all_ in (("done", "cells"), ("runs_done", "runs"))
            ]
            table.add_row(Text(entry["table"]), entry["scale"], *numbers, left, entry["verdict"])
        needed = ", ".join(dict.fromkeys(data for entry in own for data in entry["data"]))
        results.print(paper, style="bold", markup=False)
        results.print(f"data: {needed}", markup=False)
        results.print(table)
    results.print(
        "cells: methods under conditions that have all seeds. runs: those that are made. left: what the rest "
        "would take on this machine, as far as a few rounds were measured (--probe). small: a scaled test, "
        "no replication.",
        style="dim",
    )


class ComparedNumber:
    """A published number and ours."""

    def __init__(self, published: Published, known: Sequence[ResultRow]) -> None:
        self.published = published
        told = by_seed(known, published.cell, published.metric) if published.metric else {}
        self.values = [value * UNITS[published.unit] for value in told.values()]
        self.runs = len(
            {each.seed for each in known if each.cell == published.cell} if published.metric else ()
        )
        self.mean = sum(self.values) / len(self.values) if self.values else math.nan
        self.std = deviation(self.values) if self.values else math.nan
        self.gap = interval(self.values, [published.value] * len(self.values))

    @property
    def seeds(self) -> str:
        """How many have such a number: a run that never reaches a target is not dropped in silence."""
        have = len(self.values)
        return str(have) if have == self.runs else f"{have} of {self.runs}"

    @property
    def ours(self) -> str:
        """What we found, without a unit."""
        if not self.values:
            return f"none ({self.seeds})" if self.runs else "not run" if self.published.metric else "–"
        return spread(self.mean, self.std if len(self.values) > 1 else math.nan, "")

    def to_dict(self) -> dict[str, Any]:
        told = self.published._asdict()
        told |= {key: _known(told[key]) for key in ("value", "std")}
        ours = {
            "mean": _known(self.mean),
            "std": _known(self.std),
            "seeds": len(self.values),
            "runs": self.runs,
        }
        gap = _known(self.mean - self.published.value)
        between = [self.gap.low, self.gap.high] if self.gap is not None and gap is not None else None
        return {**told, "ours": ours, "difference": gap, "interval": between}


def table_json(asked: Replication) -> dict[str, Any]:
    known = asked.results
    return {
        **listing(asked),
        "called": asked.folder.called(asked.scale),
        "rows": [ComparedNumber(each, known).to_dict() for each in asked.folder.published],
        "claims": [_claim(each) for each in judge(asked.folder, known)],
        "stale": stale(asked.folder),
    }


def show_table(asked: Replication) -> None:
    known, folder = asked.results, asked.folder
    results.print(f"{folder.name}: {folder.about}", style="bold", markup=False)
    results.print(f"{asked.scale}: {folder.called(asked.scale)}", markup=False)
    table = _table(("", "paper", "ours", "n", "differs", "95 % interval"), wraps=("",))
    lines = [ComparedNumber(each, known) for each in folder.published]
    told = [line for line in lines if line.values or not math.isnan(line.published.value)]
    for column in dict.fromkeys(line.published.column for line in told):
        table.add_section()
        table.add_row(Text(column, style="bold"))
        for own, line in ((line.published, line) for line in told if line.published.column == column):
            table.add_row(Text(f"  {own.row}"), spread(own.value, own.std, own.unit), *_ours(line))
    results.print(table)
    if asked.scale == "smoke":
        results.print("All of it runs; what it claims is not asked.")
    elif folder.claims:
        claims = _table(("claim", "paper", "ours", "95 % interval", "n", "verdict"), wraps=("claim",))
        for judged in judge(folder, known):
            about, *cells = claim_cells(judged)
            claims.add_row(Text(about), *cells)
        results.print(claims)
    if not known and (elsewhere := _made(folder)):
        results.print(f"Of this scale nothing is made; {elsewhere}.", markup=False)
    if old := stale(folder):
        messages.print(
            f"warning: {counted(len(old), 'line')} of results.csv left out, of other settings than the "
            f"experiment file has now: {'; '.join(old[:3])}",
            markup=False,
        )


def _table(titles: Sequence[str], wraps: Sequence[str]) -> Table:
    table = table_of(None, padding=(0, 1, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold", no_wrap=title not in wraps)
    return table


def _made(folder: Folder) -> str:
    """At which scales there are results."""
    scales = Counter(each.about["scale"] for each in read_results(folder.path / RESULTS))
    return ", ".join(f"--scale {scale} has {counted(many, 'run')}" for scale, many in scales.items())


def _ours(line: ComparedNumber) -> tuple[str, str, str, str]:
    if not line.values:
        return line.ours, "", "", ""
    ours, published = f"{line.ours} {line.published.unit}".strip(), line.published.value
    if math.isnan(published):
        return ours, line.seeds, "", ""
    between = "" if line.gap is None else f"{_number(line.gap.low)} to {_number(line.gap.high)}"
    return ours, line.seeds, _number(line.mean - published, sign=True), between


def claim_cells(judged: Judged) -> tuple[str, ...]:
    unit = "points" if judged.unit == "%" else judged.unit  # a difference of two shares
    factor, unit = (100.0, " %") if judged.claim.relative else (1.0, f" {unit}".rstrip())
    mean = sum(judged.gaps) / len(judged.gaps) * factor if judged.gaps else math.nan
    ours = "–" if math.isnan(mean) else f"{_number(mean, sign=True)}{unit}"
    between = ""
    if judged.ours is not None:
        between = f"{_number(judged.ours.low * factor, True)} to {_number(judged.ours.high * factor, True)}"
    paper = f"{_number(judged.paper * factor, sign=True)}{unit}"
    about, against = judged.claim.about, judged.claim.against
    about += "" if isinstance(against, str) else f" (from {against:g})"
    return about, paper, ours, between, str(len(judged.gaps)), judged.verdict


def _claim(judged: Judged) -> dict[str, Any]:
    return {
        "claim": judged.claim.about,
        "conditions": judged.claim.conditions,
        "paper": judged.paper,
        "ours": None if judged.ours is None else judged.ours._asdict() | {"p": _known(judged.ours.p)},
        "differences": judged.gaps,
        "unit": judged.unit,
        "verdict": judged.verdict,
    }


def spread(mean: float, std: float, unit: str) -> str:
    if math.isnan(mean):
        return "–"
    several = "" if math.isnan(std) else f" ± {_number(std)}"
    return f"{_number(mean)}{several}{f' {unit}' if unit else ''}"


def _number(value: float, sign: bool = False) -> str:
    """Three digits behind the point of what is small, one of what is large."""
    text = f"{value:.3f}" if abs(value) < 2 else f"{value:,.2f}" if abs(value) < 100 else f"{value:,.1f}"
    return f"+{text}" if sign and value > 0 else text


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
