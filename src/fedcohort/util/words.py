"""Words of sentences that tell numbers."""

from collections.abc import Callable, Sequence
from typing import Any


def counted(number: float, what: str) -> str:
    """``1 class``, ``2 classes``, ``1,000 rounds``; ``what`` is one of them, perhaps with words before it."""
    if round(number) == 1:
        return f"1 {what}"
    return f"{number:,.0f} {what}{'es' if what.endswith('s') else 's'}"


def some(names: Sequence[Any], most: int, spell: Callable[[Any], str] = str) -> str:
    """``a, b and 3 more``, if there are more than ``most`` of them."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(spell, names[:most])) + more
