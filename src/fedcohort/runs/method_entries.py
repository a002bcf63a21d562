"""The methods of an experiment file, in every way a file may write them.

An entry is a text (an expression or a preset's name), or a table: ``name`` with the settings of that part,
``parts`` with a list of them, or ``preset`` with the settings to change. A ``label`` is what results call it,
and ``local`` is how its clients train, where that differs from the others' (``local.lr = 0.1``).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any

from fedcohort.core.method import Method, make
from fedcohort.core.profile import Local
from fedcohort.core.roles import Part
from fedcohort.presets import preset, read_method
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.names import safe_name
from fedcohort.util.settings import build, checked


def listed(entries: Any) -> list[Any]:
    """The entries of ``method``, which may be a text, or of every ``[[method]]``."""
    return [entries] if isinstance(entries, str) else list(entries)


def read_methods(entries: Any) -> tuple[Method, ...]:
    """What ``method`` or every ``[[method]]`` asks for; at least one, and none twice."""
    if not listed(entries):
        raise UserError(
            "method: the list is empty; name at least one, for example [[method]] name = 'fedavg'"
        )
    methods = tuple(_read(entry, f"method.{number}") for number, entry in enumerate(listed(entries)))
    for position, method in enumerate(methods):
        _refuse_twice(method, methods[:position])
    return methods


def read_own_local(entries: Any, methods: Sequence[Method]) -> dict[str, dict[str, Any]]:
    """By title, the ``local`` of entries that have one."""
    given = [entry.get("local", {}) if isinstance(entry, Mapping) else {} for entry in listed(entries)]
    for number, own in enumerate(given):
        build(Local, checked(own, dict, f"method.{number}.local"), f"method.{number}.local")
    return {method.title: dict(own) for method, own in zip(methods, given, strict=True) if own}


def write_method(method: Method, own: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The table that :func:`read_methods` turns into this method again, and its ``own`` local settings."""
    label = {"label": method.label} if method.label else {}
    return {"name": str(method), **label, **({"local": dict(own)} if own else {})}


def _refuse_twice(method: Method, others: tuple[Method, ...]) -> None:
    """Each run has its own directory, each method its own line in a leaderboard."""
    for other in others:
        if method.title == other.title and method != other:
            raise UserError(f"method: two methods are called '{method.title}', give one another label")
        if method == other and method.title == other.title:
            raise UserError(f"method: {method.title} is listed twice, list it once")
        if method == other:
            raise UserError(
                f"method: {other.title} and {method.title} are the same method, {method}: list one of them"
            )


def _read(entry: Any, path: str) -> Method:
    if isinstance(entry, str):
        return read_method(entry)
    if not isinstance(entry, Mapping):
        raise UserError(f"{path}: write a text like 'fedlecc+fedprox' or a table with a name")
    ways = [way for way in WAYS if way in entry]
    if not ways:
        raise UserError(f"{path}.name: missing, for example name = 'fedlecc'")
    if len(ways) > 1:
        raise UserError(f"{path}: {' and '.join(ways)} exclude each other, give one of them")
    rest = {key: value for key, value in entry.items() if key not in (ways[0], "label", "local")}
    method = WAYS[ways[0]](entry[ways[0]], rest, path)
    label = checked(entry.get("label", method.label), str, f"{path}.label")
    if label and label != safe_name(label):
        raise UserError(f"{path}.label: {label!r:.100} cannot be printed as a name, give a plain one")
    return dataclasses.replace(method, label="" if label == str(method) else label)


def _named(name: Any, settings: Mapping[str, Any], path: str) -> Method:
    name = checked(name, str, f"{path}.name")
    if "/" in name.partition("(")[0]:
        raise UserError(f"{path}.name: '{name}' is a preset, write preset = '{name}'")
    named = parse(name)
    if settings and len(named) > 1:
        raise UserError(
            f"{path}: settings of a combination go in its name, like 'fedlecc+fedprox(mu=0.1)', "
            "or in a list of parts"
        )
    parts = (make(part, {**values, **settings}, f"method.{part}") for part, values in named)
    return Method.of(*chain.from_iterable(parts))


def _preset(name: Any, settings: Mapping[str, Any], path: str) -> Method:
    name = checked(name, str, f"{path}.preset")
    return read_method(name, **settings) if "/" in name else preset(name)


def _of_parts(parts: Any, settings: Mapping[str, Any], path: str) -> Method:
    if settings or not isinstance(parts, list) or not parts:
        raise UserError(f"{path}.parts: write nothing but a list, like parts = ['fedlecc', 'fedprox']")
    return Method.of(*chain.from_iterable(_part(part, f"{path}.parts.{i}") for i, part in enumerate(parts)))


def _part(entry: Any, path: str) -> list[Part]:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, Mapping) or "name" not in entry:
        raise UserError(f"{path}: each part is a table with a name")
    (name, values), *others = parse(checked(entry["name"], str, f"{path}.name"))
    if others:
        raise UserError(f"{path}: '{entry['name']}' is several parts, list each of its own")
    return make(name, {**values, **{key: value for key, value in entry.items() if key != "name"}}, path)


WAYS = {"name": _named, "parts": _of_parts, "preset": _preset}
