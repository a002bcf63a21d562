"""The comparisons of five papers, ready to run: each baseline with the values that its paper gives.

A file ``<paper>.toml`` beside this one holds the paper's methods and, as *conditions*, the rounds, cohort,
local training, model, data and partition it uses. Every entry says where the paper states its values
(``source``), and what stands in for values it does not state (``ours``).

>>> preset("clust-psi-pfl/fedprox").objective
FedProx(mu=0.01)
>>> str(preset("clust-psi-pfl/fedprox", mu=0.1))
'fedprox(mu=0.1)'
"""

import dataclasses
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from fedcohort.core.expression import parse
from fedcohort.core.method import METHODS, Method, make
from fedcohort.core.settings import build
from fedcohort.errors import UserError

CHOOSES = {"data": "source", "partition": "name", "model": "name"}  # the key that says which one


@dataclass(frozen=True)
class Preset:
    """A method as one paper compares it."""

    name: str  # "paper/method", or "paper/method/variant" where the paper has several
    method: str  # as an expression
    source: str  # where the paper states its values
    ours: str = ""  # what it does not state, and what stands there

    def build(self, changes: Mapping[str, Any]) -> Method:
        """The method after changes of its settings, labelled with the preset's name and the changes."""
        parts = parse(self.method)
        for key, value in changes.items():
            holders = [values for name, values in parts if key in _settings(name)]
            if len(holders) != 1:
                known = " and ".join(f"{name} ({', '.join(_settings(name)) or 'none'})" for name, _ in parts)
                wrong = "belongs to several parts" if holders else "unknown"
                raise UserError(f"{self.name}.{key}: {wrong}; the preset's settings are of {known}")
            holders[0][key] = value
        changed = ", ".join(f"{key}={value!r}" for key, value in changes.items())
        label = f"{self.name}({changed})" if changed else self.name
        method = Method.of(*(make(name, values, self.name) for name, values in parts))
        return dataclasses.replace(method, label=label)


@dataclass(frozen=True)
class Conditions:
    """What a paper's experiment file would say besides its methods, on all of its data or on one data set."""

    name: str  # "paper" or "paper/data set"
    settings: dict[str, Any]  # as in an experiment file
    source: str  # where the paper states them; of a data set, what it has besides the whole paper's
    ours: str = ""  # what it does not state, and what stands there


def preset(name: str, /, **changes: Any) -> Method:
    """The method called ``"paper/method"``, with settings changed by name."""
    return _known(name, presets(), "preset").build(changes)


def read_method(text: str) -> Method:
    """Any method as text: ``fedlecc+fedprox(mu=0.01)``, or a preset, ``fedlecc/haccs(rho=0.9)``."""
    name = text.partition("(")[0].strip()
    if "/" not in name:
        return Method.parse(text)
    try:
        ((_, changes),) = parse("preset" + text.strip().removeprefix(name))
    except (UserError, ValueError):
        raise UserError(f"cannot read '{text}': write a preset alone, like fedlecc/haccs(rho=0.9)") from None
    return preset(name, **changes)


def presets() -> dict[str, Preset]:
    """All presets by name."""
    return {
        f"{paper}/{key}": build(Preset, {"name": f"{paper}/{key}", **entry}, f"{paper}.methods.{key}")
        for paper, table in _papers().items()
        for key, entry in table["methods"].items()
    }


def conditions() -> dict[str, Conditions]:
    """All conditions by name: those of a data set include those of the whole paper."""
    out = {}
    for paper, table in _papers().items():
        shared = table["conditions"]["all"]
        for key, entry in table["conditions"].items():
            name = paper if key == "all" else f"{paper}/{key}"
            whole = {**entry, "name": name, "settings": fill(entry["settings"], shared["settings"])}
            out[name] = build(Conditions, whole, f"{paper}.conditions.{key}")
    return out


def under_conditions(table: Mapping[str, Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """An experiment's table with what it leaves open filled in from a paper, and what is to be said of it."""
    known = conditions()
    settings = _known(name, known, "conditions").settings
    remarks = {each: known[each].ours for each in (name.partition("/")[0], name)}
    return fill(table, settings), [f"conditions {each}: {ours}" for each, ours in remarks.items() if ours]


def papers() -> dict[str, str]:
    """The papers' names with their citations."""
    return {name: table["paper"] for name, table in _papers().items()}


def listing(of: str | None = None) -> dict[str, Any]:
    """All presets and conditions, or those of a paper or of one of its methods, ready for JSON."""
    if of is not None:
        _known(of, {**papers(), **presets()}, "paper or preset")

    def asked(entries: Mapping[str, Preset | Conditions]) -> list[dict[str, Any]]:
        names = [name for name in entries if of is None or f"{name}/".startswith(f"{of}/")]
        return [dataclasses.asdict(entries[name]) for name in names]

    cited = {name: text for name, text in papers().items() if of is None or of.partition("/")[0] == name}
    return {"papers": cited, "presets": asked(presets()), "conditions": asked(conditions())}


def fill(table: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``table``, completed by ``given`` key by key; a section that chooses another thing stands alone."""
    out = dict(table)
    for key, value in given.items():
        own = out.setdefault(key, value)
        if isinstance(own, Mapping) and isinstance(value, Mapping):
            which = CHOOSES.get(key, "")
            if own.get(which, value.get(which)) == value.get(which):
                out[key] = {**value, **own}
    return out


@cache
def _papers() -> dict[str, dict[str, Any]]:
    beside = (file for file in files(__package__).iterdir() if file.name.endswith(".toml"))
    texts = {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in beside}
    return {paper: tomllib.loads(texts[paper]) for paper in sorted(texts)}


def _settings(name: str) -> list[str]:
    return [field.name for field in dataclasses.fields(METHODS.get(name))]  # type: ignore[arg-type]


def _known(name: str, entries: Mapping[str, Any], kind: str) -> Any:
    if name in entries:
        return entries[name]
    close = difflib.get_close_matches(name, entries, n=3)
    meant = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UserError(f"unknown {kind} '{name}': {meant or 'fedcohort methods --presets lists them'}")
