"""Where results are printed: a name in somebody's file may hold what a terminal takes for an order."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment


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
