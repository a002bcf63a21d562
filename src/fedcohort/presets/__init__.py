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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedcohort.core.method import METHODS, Method, make
from fedcohort.presets.experiments import Conditions, conditions, fill, shown, under_conditions, words
from fedcohort.presets.files import known, papers, tables
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.settings import build

__all__ = [
    "Conditions",
    "Preset",
    "conditions",
    "fill",
    "listing",
    "papers",
    "preset",
    "presets",
    "read_method",
    "under_conditions",
]


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
        method = Method.of(*(part for name, values in parts for part in make(name, values, self.name)))
        return dataclasses.replace(method, label=label)


def preset(name: str, /, **changes: Any) -> Method:
    """The method called ``"paper/method"``, with settings changed by name."""
    return known(name, presets(), "preset").build(changes)


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


def _settings(name: str) -> list[str]:
    return [field.name for field in dataclasses.fields(METHODS.get(name))]  # type: ignore[arg-type]
