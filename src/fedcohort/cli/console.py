"""Where results are printed: a name in somebody's file may hold what a terminal takes for an order."""

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

PLAIN: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False}  # no line but one below the heads
HEADED: dict[str, Any] = {"title_style": "bold", "title_justify": "left", "caption_justify": "left"}


class PlainConsole(Console):
    """Colours, lines and tables are rich's own; of the words that it is given, nothing but text is shown."""

    def render(self, *about: Any, **options: Any) -> Iterable[Segment]:
        for text, style, control in super().render(*about, **options):
            yield Segment(text if control else _shown(text), style, control)


def _shown(text: str) -> str:
    if text.isprintable() or text == "\n":
        return text
    return "".join(
        each if each.isprintable() or each == "\n" else " " if each.isspace() else "?" for each in text
    )


def table_of(title: str | Text | None, *columns: str, **looks: Any) -> Table:
    """A table whose columns are left-aligned unless their name starts with ``>``."""
    table = Table(title=title, **{**PLAIN, **HEADED, **looks})
    for name in columns:
        right = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if right else "left", overflow="fold")
    return table
