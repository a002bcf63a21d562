"""A page of tabs with cards: words, tables and Plotly figures in one HTML file that needs nothing else.

A card or a single trace of a figure may be about one method, seed or scope: ``tags`` (of a trace: ``meta``)
say so, and the filters of a tab show what matches. Figures are drawn when they are first seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from fedcohort.report.style import TEMPLATES

if TYPE_CHECKING:
    from jinja2 import Template
    from plotly.graph_objects import Figure

MARK = '<meta name="generator" content="fedcohort">'  # near the start of every page, and of nobody else's
ALL = "*"  # the option of a filter that hides nothing


@dataclass(frozen=True)
class TextTable:
    """Rows of text; a column whose title starts with ``>`` holds numbers and is aligned to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    strong: frozenset[tuple[int, int]] = frozenset()  # cells to emphasise: row, column


class Led(NamedTuple):
    """A paragraph whose first words stand out; a command may follow."""

    lead: str
    text: str
    command: str = ""


@dataclass(frozen=True, eq=False)
class Card:
    """One thing to look at; everything but the title may be missing."""

    title: str
    about: str = ""  # how to read it
    sentences: Sequence[str | Led] = ()
    table: TextTable | None = None
    figure: "Figure | None" = None
    details: Sequence[tuple[str, str]] = ()  # heading and text of what opens on demand
    tags: Mapping[str, str] = field(default_factory=dict)
    note: str = ""  # below everything else


@dataclass(frozen=True)
class Filter:
    """A choice of what a tab shows; the first option is the default."""

    key: str
    title: str
    options: Sequence[tuple[str, str]]  # value, text


@dataclass(frozen=True)
class Tab:
    name: str  # also its address: page.html#/name
    title: str
    cards: Sequence[Card]
    filters: Sequence[Filter] = ()

    @property
    def choices(self) -> Iterator[Filter]:
        """The filters that leave a choice."""
        return (filter_ for filter_ in self.filters if len(filter_.options) > 1)


@dataclass(frozen=True)
class Page:
    title: str
    subtitle: str
    tabs: Sequence[Tab]


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fedcohort.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html")


def render(page: Page) -> str:
    """The page as HTML; whatever users wrote is escaped."""
    from plotly.offline import get_plotlyjs

    here = files("fedcohort.report")
    return _template().render(
        page=page,
        mark=MARK,
        templates=TEMPLATES,
        plotly=get_plotlyjs(),
        style=(here / "page.css").read_text(encoding="utf-8"),
        script=(here / "page.js").read_text(encoding="utf-8"),
    )
