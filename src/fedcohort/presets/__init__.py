"""The comparisons of five papers, ready to run: each baseline with the values that its paper gives.

A file ``<paper>.toml`` beside this one holds the paper's methods and, as *conditions*, the rounds, cohort,
local training, model, data and partition it uses. Every entry says where the paper states its values
(``source``), and what stands in for values it does not state (``ours``). ``experiments.py`` says how
conditions are named.

>>> preset("clust-psi-pfl/fedprox").objective
FedProx(mu=0.01)
>>> str(preset("clust-psi-pfl/fedprox", mu=0.1))
'fedprox(mu=0.1)'
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fedcohort.core.method import Method, make, options_of, spell
from fedcohort.core.roles import Part
from fedcohort.presets.experiments import Conditions, conditions, fill, shown, under_conditions, words
from fedcohort.presets.files import known, papers, tables
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.settings import build

__all__ = [
    "Conditions", "Preset", "conditions", "fill", "listing", "papers", "preset", "presets", "read_method",
    "under_conditions",
]  # fmt: skip


@dataclass(frozen=True)
class Preset:
    """A method as one paper compares it."""

    name: str  # "paper/method", or "paper/method/variant" where the paper has several
    method: str  # as an expression
    source: str  # where the paper states its values
    ours: str = ""  # what it does not state, and what stands there

    def parts(self, changes: Mapping[str, Any]) -> list[Part]:
        """Its parts after changes of their settings."""
        parts = parse(self.method)
        for key, value in changes.items():
            holders = [values for name, values in parts if key in options_of(name)]
            if len(holders) != 1:
                known = " and ".join(f"{name} ({', '.join(options_of(name)) or 'none'})" for name, _ in parts)
                wrong = "belongs to several parts" if holders else "unknown"
                raise UserError(f"{self.name}.{key}: {wrong}; the preset's settings are of {known}")
            holders[0][key] = value
        return [part for name, values in parts for part in make(name, values, self.name)]

    def label(self, changes: Mapping[str, Any]) -> str:
        """What results call it: the preset's name and the changes."""
        changed = ", ".join(f"{key}={value!r}" for key, value in changes.items())
        return f"{self.name}({changed})" if changed else self.name


def preset(name: str, /, **changes: Any) -> Method:
    """The method called ``"paper/method"``, with settings changed by name."""
    found = known(name, presets(), "preset")
    return dataclasses.replace(Method.of(*found.parts(changes)), label=found.label(changes))


def read_method(text: str, **changes: Any) -> Method:
    """Any method as text: ``fedlecc+fedprox(mu=0.01)``, a preset, ``fedlecc/haccs(rho=0.9)``, or one with
    further parts, ``fedlecc/haccs+clip(1.0)``; ``changes`` are of a preset's settings."""
    plain, named = _without_presets(text)
    if not named:
        return Method.parse(text)
    try:
        terms = parse(plain)
    except UserError:
        cure = "write a preset like fedlecc/haccs(rho=0.9)+clip(1.0)"
        raise UserError(f"cannot read '{text}': {cure}") from None
    parts: list[Part] = []
    labels = []
    for name, values in terms:
        values = {**values, **changes} if name in named else values
        own = named[name].parts(values) if name in named else make(name, values)
        labels.append(named[name].label(values) if name in named else "+".join(map(spell, own)))
        parts += own
    return dataclasses.replace(Method.of(*parts), label="+".join(labels))


def _without_presets(text: str) -> tuple[str, dict[str, Preset]]:
    """The text with a plain name in place of every preset's, and the preset that each of these stands for."""
    named: dict[str, Preset] = {}

    def stand_in(match: re.Match[str]) -> str:
        name = f"preset_{len(named)}"
        named[name] = known(match["name"], presets(), "preset")
        return match["before"] + name

    longest_first = "|".join(re.escape(name) for name in sorted(presets(), key=len, reverse=True))
    # Of several that fit the longest: 'fedgwc/fedgwc+fedavgm' is a preset's name.
    pattern = rf"(?P<before>(?:^|\+)\s*)(?P<name>(?:{longest_first})(?=\s*(?:[(+]|$))|[\w-]+/[^()+\s]*)"
    return re.sub(pattern, stand_in, text), named


@cache
def presets() -> dict[str, Preset]:
    """All presets by name."""
    return {
        f"{paper}/{key}": build(Preset, {"name": f"{paper}/{key}", **entry}, f"{paper}.methods.{key}")
        for paper, table in tables().items()
        for key, entry in table["methods"].items()
    }


def listing(of: str | None = None) -> dict[str, Any]:
    """All presets and conditions, or those of a paper or of one of its methods, ready for JSON."""
    if of is not None:
        known(of, {**papers(), **presets()}, "paper or preset")

    def asked(entries: Mapping[str, Preset | Conditions]) -> list[dict[str, Any]]:
        names = [name for name in entries if of is None or f"{name}/".startswith(f"{of}/")]
        return [dataclasses.asdict(entries[name]) for name in names]

    cited = {name: text for name, text in papers().items() if of is None or of.partition("/")[0] == name}
    whole = [paper for paper in cited if of in (None, paper)]
    further = [
        {"paper": paper, "word": text, "on": list(word.on), "source": word.source, "ours": word.ours}
        for paper in whole
        for word in words(paper)
        for text in word.spelled
    ]
    made = [
        {
            "paper": paper,
            **dataclasses.asdict(entry),
            "conditions": entry.names(paper),
            "methods": list(entry.methods),
        }
        for paper in whole
        for entry in shown(paper)
    ]
    return {
        "papers": cited,
        "presets": asked(presets()),
        "conditions": asked(conditions()),
        "words": further,
        "shows": made,
    }
