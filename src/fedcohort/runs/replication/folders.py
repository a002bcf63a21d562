"""A folder of ``papers/``: one table or figure of a paper, its published numbers, and how it is made again.

=============== ==================================================================================
experiment.toml an ordinary experiment file, the paper's protocol; it sweeps ``conditions``
table.toml      what the table shows, the scales (settings as ``--set`` takes them), the claims
expected.csv    the published numbers; one without ``metric`` is shown, and nothing is run for it
results.csv     ours, a line for each run
README.md       what the paper leaves open, and what stands there
=============== ==================================================================================
"""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fedcohort.util.errors import UserError
from fedcohort.util.files import damaged, read_text, read_toml
from fedcohort.util.settings import build, checked, nearest

Scale = Literal["paper", "small", "smoke"]
SCALES: dict[str, str] = {  # what a run at each of them may be called
    "paper": "a replication: the paper's protocol",
    "small": "a scaled test, not a replication",
    "smoke": "a trial of the machinery, whose numbers mean nothing",
}
EXPERIMENT, ABOUT, EXPECTED, RESULTS = "experiment.toml", "table.toml", "expected.csv", "results.csv"
UNITS = {"": 1.0, "%": 100.0, "MB": 1e-6}
FIRST = ("conditions", "method", "scale", "seed")  # what results.csv has of a run, before its numbers
LAST = ("rounds", "seconds", "config", "data", "version", "command")  # and after them
RUN_COLUMNS = {*FIRST, *LAST}
COLUMNS = ("table", "row", "column", "conditions", "method", "metric", "value", "std", "unit")
LARGEST = 1e12  # of a published number


class Published(NamedTuple):
    """One number of the paper's table."""

    table: str
    row: str
    column: str
    conditions: str
    method: str
    metric: str  # several with + between them are added; empty: it is not made here
    value: float
    std: float  # NaN: not published
    unit: str

    @property
    def cell(self) -> "Cell":
        return Cell(self.conditions, self.method)


class Cell(NamedTuple):
    """What one run, with a seed, is about."""

    conditions: str
    method: str

    def short(self, paper: str) -> str:
        """``fedavg@fmnist``, as ``--cells`` names it."""
        return "@".join(self.words(paper))

    def words(self, paper: str) -> tuple[str, str]:
        """Its method and conditions, without the name of the paper."""
        return self.method.removeprefix(f"{paper}/"), self.conditions.removeprefix(f"{paper}/")


def measured(metric: str, values: dict[str, float]) -> float:
    return sum(values.get(key, math.nan) for key in metric.split("+"))


@dataclass(frozen=True)
class Scaled:
    """One scale of a table."""

    about: str = ""  # in what it is not the paper's protocol
    set: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """That a method is better or worse than another, or than a number, under some conditions."""

    about: str
    method: str
    conditions: str
    metric: str
    against: str | float
    paper: float | None = None  # the published difference; None: that of the published numbers
    relative: bool = False  # differences are shares of the other's number
    why: dict = field(default_factory=dict)  # of a headline: the most likely reason, by verdict

    @property
    def cells(self) -> list[Cell]:
        """What it needs."""
        sides = (self.method, self.against)
        return [Cell(self.conditions, side) for side in sides if isinstance(side, str)]


@dataclass(frozen=True)
class Study:
    """A program of ``studies/`` that makes the numbers: which file has them, and what its rows are."""

    name: str
    file: str
    conditions: str  # with the columns of the file as $column
    method: str
    data: str


@dataclass(frozen=True)
class _About:
    about: str
    ours: str = ""  # what it is where the paper has no such table: other readings, or other data
    scales: dict = field(default_factory=dict)
    claims: list = field(default_factory=list)
    also: tuple[str, ...] = ()  # further numbers that are kept
    study: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Folder:
    """One table or figure; code that its files name is run only if it is ``trusted``."""

    path: Path
    trusted: bool = False

    @property
    def paper(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.path.name}"

    @property
    def root(self) -> Path:
        """The repository: ``papers`` is in it."""
        return self.path.resolve().parents[2]

    @cached_property
    def _told(self) -> _About:
        return build(_About, read_toml(self.path / ABOUT), str(self.path / ABOUT))

    @property
    def about(self) -> str:
        return self._told.about

    @property
    def ours(self) -> str:
        return self._told.ours

    @cached_property
    def scales(self) -> dict[str, Scaled]:
        """The paper's own needs no word."""
        told = {"paper": {}, **self._told.scales}
        for name in told:
            if name not in SCALES:
                raise UserError(f"{self.path / ABOUT}: scales.{name}: unknown{nearest(name, SCALES)}")
        tables = {name: checked(told[name], dict, f"{self.path / ABOUT}: scales.{name}") for name in told}
        where = f"{self.path / ABOUT}: scales"
        return {name: build(Scaled, tables[name], f"{where}.{name}") for name in SCALES if name in told}

    def called(self, scale: str) -> str:
        """What runs at this scale may be called, and in what they are not the paper's."""
        own = self.scale(scale).about
        if scale == "paper" and own:
            return f"the paper's settings, but not a replication in all of it: {own}"
        return f"{SCALES[scale]} ({own})" if own else SCALES[scale]

    def scale(self, name: str) -> Scaled:
        if name not in self.scales:
            raise UserError(f"{self.name} has no scale '{name}': it has {', '.join(self.scales)}")
        return self.scales[name]

    @cached_property
    def claims(self) -> list[Claim]:
        where = f"{self.path / ABOUT}: claims"
        told = enumerate(checked(self._told.claims, tuple[dict, ...], where))
        return [build(Claim, each, f"{where}.{number}") for number, each in told]

    @cached_property
    def study(self) -> Study | None:
        where = f"{self.path / ABOUT}: study"
        study = build(Study, self._told.study, where) if self._told.study else None
        if study and not (study.name.isidentifier() and Path(study.file).name == study.file):
            raise UserError(f"{where}: 'name' and 'file' are those of files in studies/")
        return study

    @cached_property
    def published(self) -> list[Published]:
        return list(_published(self.path / EXPECTED))

    @cached_property
    def cells(self) -> list[Cell]:
        """What is to be run; what a claim needs comes first, then as the paper's table has it."""
        asked = dict.fromkeys(each.cell for each in self.published if each.metric)
        if not asked:
            raise UserError(f"{self.path / EXPECTED} names no number that is made here: give one a metric")
        return sorted(asked, key=lambda cell: cell not in self.decisive)

    @cached_property
    def decisive(self) -> set[Cell]:
        return {cell for claim in self.claims for cell in claim.cells}

    @cached_property
    def metrics(self) -> list[str]:
        """The numbers that are kept of a run."""
        named = [each.metric for each in self.published if each.metric]
        named += [*(claim.metric for claim in self.claims), *self._told.also]
        every = list(dict.fromkeys(key for metric in named for key in metric.split("+")))
        if taken := [key for key in every if key in RUN_COLUMNS]:
            raise UserError(f"{self.path}: '{taken[0]}' is no metric but a column that every results.csv has")
        return every


def folders(papers: Path, name: str | None = None, trusted: bool = False) -> list[Folder]:
    """All tables below ``papers``, or those of this name, ``paper/table``, ``paper/*`` or ``paper``."""
    found = {
        folder.name: folder
        for path in sorted(papers.glob(f"*/*/{ABOUT}"))
        if not path.parent.is_symlink()  # results would be written elsewhere
        for folder in [Folder(path.parent, trusted)]
    }
    if not found:
        raise UserError(
            f"there are no papers' tables in {papers.resolve()}: give the folder 'papers' of fedcohort's "
            "repository with --papers"
        )
    if name is None:
        return list(found.values())
    pattern = f"{name}/*" if any(folder.paper == name for folder in found.values()) else name
    chosen = [name] if name in found else [each for each in found if fnmatchcase(each, pattern)]
    if not chosen:
        raise UserError(f"unknown table '{name}'{nearest(name, found)}; 'fedcohort replicate' lists them")
    return [found[each] for each in chosen]


def rows_of(path: Path) -> list[dict[str, str]]:
    """The lines of a CSV file by its columns."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path)), strict=True))
    except csv.Error as error:
        raise damaged(path, error) from None
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise damaged(path, f"line {number} has not as many fields as the first")
    return rows


def number(text: str, path: Path, largest: float = LARGEST) -> float:
    """NaN if there is none."""
    try:
        value = float(text) if text else math.nan
    except ValueError:
        raise damaged(path, f"{text!r:.40} is no number") from None
    if text and not abs(value) <= largest:
        raise damaged(path, f"{text!r:.40} is beyond all measure")
    return value


def _published(path: Path) -> Iterator[Published]:
    for row in rows_of(path):
        if tuple(row) != COLUMNS:
            raise damaged(path, f"its columns are not {','.join(COLUMNS)}")
        if row["unit"] not in UNITS:
            raise damaged(path, f"unit {row['unit']!r:.20} is none of {', '.join(filter(None, UNITS))}")
        numbers: dict[str, Any] = {key: number(row[key], path) for key in ("value", "std")}
        yield Published(**{**row, **numbers})
