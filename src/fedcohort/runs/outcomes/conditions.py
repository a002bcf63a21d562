"""Under which conditions runs were made: the settings, besides method and seed, in which they differ.

They are found by reading: each run directory says all that was asked, and nothing that it names is executed.
What names or measures a run is no condition. What may be a method's own, its parameters and how its clients
train, is one only where runs of the same method differ in it: each may have been tuned and have its own
learning rate. A method without a parameter competes under each of its values.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import inf, prod
from pathlib import Path
from typing import Any, NamedTuple

from fedcohort.core.method import METHODS
from fedcohort.runs.outcomes.flat import Settings, Value, flat, plain
from fedcohort.runs.stored import ASKED, RunSettings, method_names, planned
from fedcohort.util.errors import UserError
from fedcohort.util.expression import FIRST, parse
from fedcohort.util.files import damaged, fields, read_toml
from fedcohort.util.names import safe_name
from fedcohort.util.settings import settings_of
from fedcohort.util.user_code import comes_with_fedcohort

NEVER = ("name", "seeds", "imports", "evaluate.", "data.root")
METHOD = "method."
OWN = (METHOD, "local.")  # what may belong to a method
NAMES = {"partition": "name", "model": "name", "data": "source"}  # what says of which kind a section is


class Placed(NamedTuple):
    """A run among others: what its method is called there, and its conditions."""

    method: str
    settings: Settings


def settings(asked: RunSettings) -> Settings:
    """All that a run was asked, as ``partition.alpha``, ``local.lr`` or ``method.fedprox.mu``."""
    told = {key: value for key, value in asked.flat.items() if key != "method"}
    for part, values in _parts(asked.method).items():
        told |= {f"{METHOD}{part}.{key}": plain(value) for key, value in values.items()}
    return told


def swept(home: Path) -> dict[str, list[Any]]:
    """The settings that the experiment file of a comparison asks to vary, with their values."""
    path = home / ASKED
    sweep = read_toml(path).get("sweep") if path.exists() else None
    told = flat(sweep, path) if isinstance(sweep, dict) else {}
    try:
        return {key: json.loads(value) for key, value in told.items() if isinstance(value, str)}
    except ValueError:
        raise damaged(path, "what is swept is not a list of values") from None


def planned_runs(home: Path) -> int:
    """How many runs a comparison will have; a method is run once for all values of what it does not have."""
    path, lists, runs = home / ASKED, swept(home), 0
    table = read_toml(path)
    zipped = bool(lists) and table["sweep"].get("zip") is True
    for entry in fields(table, {"method": list}, path)["method"]:
        method = method_names(entry, path)[0]
        own = [values for key, values in lists.items() if _applies(key, method)]
        points = {json.dumps(point) for point in zip(*own, strict=False)}
        runs += len(points) if zipped and own else prod(map(len, own))
    return runs * len({run.seed for run in planned(home)})


def place(runs: Sequence[RunSettings], wanted: Collection[str] = ()) -> list[Placed]:
    """Every run with its conditions; ``wanted`` ones are conditions even if they might be a method's own."""
    each = [settings(asked) for asked in runs]
    titles = [_without(asked, wanted) for asked in runs]
    keys = [key for key in dict.fromkeys(key for told in each for key in told) if not key.startswith(NEVER)]
    common = [key for key in keys if not key.startswith(OWN) and _differ(told.get(key) for told in each)]
    common = [key for key in common if key in wanted or not _of_one_kind(key, each)]
    alike: dict[tuple[str, ...], list[Settings]] = {}
    for title, told in zip(titles, each, strict=True):
        alike.setdefault((title, *(_same(told.get(key)) for key in common)), []).append(told)

    def own(key: str) -> bool:
        if key in wanted:
            return _differ(told[key] for told in each if key in told)
        return any(_differ(told.get(key) for told in group) for group in alike.values())

    chosen = [key for key in keys if key in common or (key.startswith(OWN) and own(key))]
    return [
        Placed(title, {key: told.get(key) for key in chosen if _applies(key, asked.method)})
        for title, told, asked in zip(titles, each, runs, strict=True)
    ]


def keys_of(each: Iterable[Settings]) -> list[str]:
    return list(dict.fromkeys(key for told in each for key in told))


def combinations(each: Sequence[Settings]) -> list[Settings]:
    """The conditions under which methods are ranked; without any, one that is empty.

    Parameters of different parts go with each other in every way, all else as it was met.
    """
    parts: dict[str, list[str]] = {}
    for key in keys_of(each):
        parts.setdefault(key.rpartition(".")[0] if key.startswith(METHOD) else "", []).append(key)
    common = parts.pop("", [])
    found = []
    for met in distinct({key: told[key] for key in common} for told in each):
        under, several = [told for told in each if joins(met, told)], [met]
        for keys in parts.values():
            values = distinct({key: told[key] for key in keys} for told in under if told.keys() >= {*keys})
            several = [{**one, **other} for one, other in product(several, values or [{}])]
        found += several
    return sorted(found, key=lambda one: [order(value) for value in one.values()])


def joins(told: Settings, combination: Settings) -> bool:
    """Whether a run takes part where these are the conditions."""
    return all(key in combination and _same(combination[key]) == _same(value) for key, value in told.items())


def distinct(each: Iterable[Settings]) -> list[Settings]:
    return list({tuple(map(_same, told.values())): told for told in each}.values())


def text(value: Value) -> str:
    """As tables and headings show it; 1, a client, and 1.0, everybody, are two."""
    if value is None:
        return "–"
    return safe_name(value) if isinstance(value, str) else json.dumps(value)


def in_words(told: Mapping[str, Value]) -> str:
    """``partition.alpha = 0.1, local.lr = 0.01``; what is not said is left out if anything is."""
    said = {key: value for key, value in told.items() if value is not None} or told
    return ", ".join(f"{safe_name(key)} = {text(value)}" for key, value in said.items())


def order(value: Value) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    number = float(value) if isinstance(value, int | float) else inf
    return number == inf, number, text(value)


@lru_cache(maxsize=1024)
def _parts(method: str) -> dict[str, dict[str, Any]]:
    """The parts that a method's text names, with their parameters; of those that come with fedcohort, all."""
    found: dict[str, dict[str, Any]] = {}
    try:
        for name, given in parse(method):
            known = settings_of(METHODS.get(name)) if comes_with_fedcohort(METHODS, name) else []
            first = known[0].name if known else "value"
            values = {setting.name: setting.default for setting in known}
            values |= {first if key == FIRST else key: value for key, value in given.items()}
            found[f"{name}[{len(found) + 1}]" if name in found else name] = values
    except UserError:  # no text of ours
        return {}
    return found


def _without(asked: RunSettings, wanted: Collection[str]) -> str:
    """What a method is called when some of its parameters are conditions, which a sweep adds to its label."""
    keys = [key for key in wanted if key.startswith(METHOD) and _applies(key, asked.method)]
    title, own = asked.title, settings(asked) if keys else {}
    if title != asked.method:
        for key in reversed(keys):
            title = title.removesuffix(f" ({key.rpartition('.')[2]}={own.get(key)})")
        return title
    words = []
    for name, given in parse(asked.method) if keys else ():
        left = [f"{key}={value!r}" for key, value in given.items() if f"{METHOD}{name}.{key}" not in keys]
        words.append(f"{name}({', '.join(left)})" if left else name)
    return "+".join(words) or title


def _applies(key: str, method: str) -> bool:
    return not key.startswith(METHOD) or key.removeprefix(METHOD).rpartition(".")[0] in _parts(method)


def _of_one_kind(key: str, each: Sequence[Settings]) -> bool:
    """Whether only one kind of partition, model or data has a setting, always with the same value: then the
    kind says it all."""
    section = key.rpartition(".")[0]
    name = f"{section}.{NAMES.get(section)}"
    kinds: dict[str, set[str]] = {}
    for told in each:
        kinds.setdefault(_same(told.get(name)), set()).add(_same(told.get(key)))
    values = set().union(*kinds.values()) - {_same(None)}
    return key != name and len(values) == 1 and all(len(own) == 1 for own in kinds.values())


def _differ(values: Iterable[Value]) -> bool:
    return len(set(map(_same, values))) > 1


def _same(value: Value) -> str:
    return json.dumps(value)
