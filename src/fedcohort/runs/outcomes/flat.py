"""Settings as one level of dotted keys, ``partition.alpha``, with values that a table can show."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedcohort.util.files import damaged
from fedcohort.util.settings import WHOLE

Value = bool | int | float | str | None  # None: not said, as the defaults of data sources and models
Settings = dict[str, Value]
MOST, DEEPEST = 1000, 8  # settings of a run, and tables in tables


def flat(table: Mapping[str, Any], path: Path) -> Settings:
    """Of the tables in a file that may be anybody's."""
    found: Settings = {}
    for key, value in _entries(table, path):
        found[key] = value
        if len(found) > MOST:
            raise damaged(path, f"it has more than {MOST:,} settings")
    return found


def plain(value: Any) -> Value:
    """Numbers and words as they are; lists, dates and numbers beyond all measure as texts."""
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float) and abs(value) <= WHOLE:
        return value
    try:
        return json.dumps(value, default=str)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists without end
        return "..."


def _entries(table: Mapping[str, Any], path: Path, above: str = "") -> Iterator[tuple[str, Value]]:
    if above.count(".") > DEEPEST:
        raise damaged(path, f"{above[:40]} is too deep a table")
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _entries(value, path, f"{above}{key}.")
        else:
            yield f"{above}{key}", plain(value)
