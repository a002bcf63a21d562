"""``--set local.lr=0.1``: one setting of an experiment's table changed from the command line."""

import copy
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from fedcohort.data.partition import PARTITIONS
from fedcohort.data.sources import COMMON, SOURCES
from fedcohort.models import MODELS
from fedcohort.util.errors import UserError
from fedcohort.util.registry import Registry
from fedcohort.util.settings import settings_of

# Tables that name a thing and hold its settings: by which key, where it is found, settings of all its kind.
NAMING: dict[str, tuple[str, Registry[Any], Iterable[str]]] = {
    "partition": ("name", PARTITIONS, ()),
    "model": ("name", MODELS, ()),
    "data": ("source", SOURCES, COMMON),
}


def override_all(table: dict[str, Any], changes: Iterable[str]) -> list[str]:
    """Applies all changes. A thing that they name in place of another has no use for the other's settings:
    the notes say which were dropped."""
    before = copy.deepcopy(table)
    for change in changes:
        override(table, change)
    return [
        f"{section}.{key} = {named}: {', '.join(dropped)} of the file dropped, which it does not have"
        for section, (key, registry, common) in NAMING.items()
        if (named := _renamed(before.get(section), table.get(section), key, registry)) is not None
        and (dropped := _drop(before[section], table[section], {key, *common}, registry.get(named)))
    ]


def _renamed(before: Any, after: Any, key: str, registry: Registry[Any]) -> str | None:
    """What stands in the place of another thing now, if it is known."""
    if not isinstance(before, dict) or not isinstance(after, dict) or before.get(key) == after.get(key):
        return None
    return after[key] if after.get(key) in registry.names() else None


def _drop(before: Mapping[str, Any], after: dict[str, Any], kept: set[str], cls: type) -> list[str]:
    """Takes away what the file set and nobody changed, unless ``cls`` has such a setting too."""
    known = kept | {setting.name for setting in settings_of(cls)}
    unfit = [key for key in before if key not in known and before[key] == after.get(key)]
    for key in unfit:
        del after[key]
    return unfit


def override(table: dict[str, Any], change: str) -> None:
    """Applies ``key.key=value``; the entries of a list go by position or name: ``method.fedprox.mu=1``."""
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise UserError(f"--set {change}: write it like --set local.lr=0.1")
    assign(table, path.strip(), value_of(text), f"--set {change}")


def changed(change: str) -> str:
    """The setting that ``key.key=value`` is about."""
    return change.partition("=")[0].strip()


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
