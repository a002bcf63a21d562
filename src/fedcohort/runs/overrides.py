"""``--set local.lr=0.1``: one setting of an experiment's table changed from the command line."""

import tomllib
from collections.abc import Mapping
from typing import Any

from fedcohort.util.errors import UserError


def override(table: dict[str, Any], change: str) -> None:
    """Applies ``key.key=value``; the entries of a list go by position or name: ``method.fedprox.mu=1``."""
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--set {change}: write it like --set local.lr=0.1")
    assign(table, path.strip(), value_of(text), f"--set {change}")


def assign(table: dict[str, Any], path: str, value: Any, change: str) -> None:
    """The setting at ``path`` is ``value`` now; ``change`` is what a mistake is told of."""
    *parents, last = path.split(".")
    here: Any = table
    for key in parents:
        here = _child(here, key, change)
    here[_position(here, last, change) if isinstance(here, list) else last] = value


def value_of(text: str) -> Any:
    """As TOML reads it; what is not TOML is a word."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # TOML, a number of thousands of digits, lists in lists without end
        return text.strip()


def _child(here: Any, key: str, change: str) -> Any:
    child = here[_position(here, key, change)] if isinstance(here, list) else here.setdefault(key, {})
    if not isinstance(child, dict | list):
        raise UserError(f"{change}: '{key}' is a single value, not a table")
    return child


def _position(here: list[Any], key: str, change: str) -> int:
    names = [_name(entry) if isinstance(entry, Mapping) else entry for entry in here]
    if key in names:
        return names.index(key)
    if not (key.isdecimal() and len(key) < 10) or int(key) >= len(here):
        raise UserError(f"{change}: '{key}' is no name here and no position from 0 to {len(here) - 1}")
    return int(key)


def _name(entry: Mapping[str, Any]) -> Any:
    return entry.get("name", entry.get("preset"))
