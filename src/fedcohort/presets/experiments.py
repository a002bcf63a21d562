"""What papers' experiments have in common besides their methods, and which of their tables they make.

``[conditions.fmnist]`` in a paper's file is a whole experiment without methods. Tables and figures vary a few
things of it, and each is a *word* after the name, ``clust-psi-pfl/fmnist/alpha=0.05/K=50``: an entry of
``[[words]]`` says what it sets, for which conditions, and where the paper states it. ``[[shows]]`` lists the
paper's tables and figures with the conditions that they need.

>>> find("clust-psi-pfl/fmnist/S=0/K=10").settings["partition"]
{'name': 'similarity', 'clients': 10, 'similarity': 0}
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

from fedcohort.presets.files import known, tables
from fedcohort.util.errors import UserError
from fedcohort.util.settings import build

CHOOSES = {"data": "source", "partition": "name", "model": "name"}  # the key that says which one


@dataclass(frozen=True)
class Conditions:
    """What a paper's experiment file would say besides its methods, on all of its data or on one data set."""

    name: str  # "paper", "paper/data set" or "paper/data set/word/..."
    settings: dict[str, Any]  # as in an experiment file
    source: str  # where the paper states them; of a data set, what it has besides the whole paper's
    ours: str = ""  # what it does not state, and what stands there


@dataclass(frozen=True)
class Word:
    """What a table or figure varies, as a word after the name of some of the paper's conditions."""

    name: str  # "dropout", or "alpha" of "alpha=0.05" where there are values
    on: tuple[str, ...]  # conditions that it may follow
    source: str  # where the paper states it
    values: tuple[Any, ...] = ()
    key: str = ""  # the setting that takes the value
    settings: dict[str, Any] = field(default_factory=dict)  # what it sets besides
    kind: str = ""  # a name has at most one word of each kind; its own by default
    ours: str = ""  # what the paper does not state, and what stands there

    @property
    def spelled(self) -> dict[str, dict[str, Any]]:
        """The settings of each of its spellings."""
        section, _, key = self.key.rpartition(".")
        made = {}
        for value in self.values:
            own = {section: {**self.settings.get(section, {}), key: value}} if section else {key: value}
            made[f"{self.name}={value}"] = {**self.settings, **own}
        return made or {self.name: self.settings}


@dataclass(frozen=True)
class Shown:
    """A table or figure of a paper, and what makes it."""

    what: str  # "Table III"
    about: str
    conditions: tuple[list, ...] = ()  # a choice for each part of the names: the conditions, then words or ""
    methods: tuple[str, ...] = ()  # presets, without the paper's name; "*": all of the paper's
    read: str = ""  # the numbers to look at
    how: str = ""  # where it takes more or something else than to run the methods under the conditions
    refused: str = ""  # why it cannot be made

    def names(self, paper: str) -> list[str]:
        """The conditions' full names."""
        chosen = ([part for part in parts if part] for parts in product(*self.conditions))
        return ["/".join([paper, *parts]) for parts in chosen] if self.conditions else []


@cache
def conditions() -> dict[str, Conditions]:
    """All conditions by name, without further words: those of a data set include those of the whole paper."""
    out = {}
    for paper, table in tables().items():
        shared = table["conditions"]["all"]
        for key, entry in table["conditions"].items():
            name = paper if key == "all" else f"{paper}/{key}"
            whole = {**entry, "name": name, "settings": fill(entry["settings"], shared["settings"])}
            out[name] = build(Conditions, whole, f"{paper}.conditions.{key}")
    return out


@cache
def words(paper: str) -> list[Word]:
    entries = tables()[paper].get("words", [])
    return [build(Word, entry, f"{paper}.words.{number}") for number, entry in enumerate(entries)]


def shown(paper: str) -> list[Shown]:
    entries = tables()[paper].get("shows", [])
    return [build(Shown, entry, f"{paper}.shows.{number}") for number, entry in enumerate(entries)]


def spellings(name: str) -> dict[str, tuple[Word, dict[str, Any]]]:
    """The words that may follow these conditions, with what each sets; in the order in which they apply."""
    paper, _, data = name.partition("/")
    return {
        text: (word, settings)
        for word in words(paper)
        if data in word.on
        for text, settings in word.spelled.items()
    }


def find(name: str) -> Conditions:
    """The conditions of that name, further words included."""
    return list(_steps(name))[-1]


def under_conditions(table: Mapping[str, Any], name: str) -> tuple[dict[str, Any], list[str]]:
    """An experiment's table with what it leaves open filled in from a paper, and what is to be said of it."""
    steps = list(_steps(name))
    remarks = {step.name: step.ours for step in (conditions()[name.partition("/")[0]], *steps)}
    said = [f"conditions {each}: {ours}" for each, ours in remarks.items() if ours]
    return fill(table, steps[-1].settings), said


def _steps(name: str) -> Iterator[Conditions]:
    """The conditions named first, and what each further word makes of them."""
    first = "/".join(name.split("/")[:2])
    step = known(first, conditions(), "conditions")
    yield step
    asked, may_follow = name.split("/")[2:], spellings(first)
    for text in asked:
        if text not in may_follow:
            choice = f"only {', '.join(may_follow)}" if may_follow else "nothing"
            raise UserError(f"unknown conditions '{name}': '{text}' is none; {choice} may follow '{first}'")
    kinds: dict[str, str] = {}
    for text, (word, settings) in may_follow.items():  # the file's order: what is set last must win
        if text in asked:
            other = kinds.setdefault(word.kind or word.name, text)
            if other != text or asked.count(text) > 1:
                raise UserError(f"conditions '{name}': '{other}' and '{text}' exclude each other, name one")
            step = Conditions(f"{step.name}/{text}", fill(settings, step.settings), word.source, word.ours)
            yield step


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
