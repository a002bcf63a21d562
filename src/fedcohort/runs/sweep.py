"""``[sweep]``: the same comparison under several settings.

A key is a setting as ``--set`` names it, with the list of its values. All combinations are run or, with
``zip = true``, the first values of all lists together, then the second ones, and so on. ``method.fedprox.mu``
is FedProx's in every method that has it as a part; other methods are run once for all of its values.
``conditions`` are those of papers: each of them fills in what the file leaves open.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Any

from fedcohort.core.method import Method
from fedcohort.core.roles import Part
from fedcohort.runs.overrides import value_of
from fedcohort.util.errors import UserError
from fedcohort.util.settings import build, checked, nearest

CONDITIONS = "conditions"
Point = dict[str, Any]  # one value of every setting
OF_METHODS = "method."  # what settings of methods begin with
BETWEEN = re.compile(r",(?![^(]*\))")  # commas, but for those of ``dirichlet(clients=20, alpha=0.1)``
ELSEWHERE = {  # what is not swept, and what does it instead
    "method": "list several methods under 'method'",
    "seeds": "list several seeds under 'seeds'",
    "name": "it changes nothing",
    "imports": "it changes nothing",
    "track": "it changes no result",
    "run": "it changes no result",
}
VALUES = 10_000  # of a setting, at most
MOST = 100_000  # runs of a comparison, and so combinations of values


@dataclass(frozen=True)
class Sweep:
    """Settings with their values, and whether these go together in their order."""

    values: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    zipped: bool = False

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> "Sweep":
        """From a file, where a key may be written as text (``"local.lr" = [...]``) or bare."""
        zipped = table.get("zip", False)
        if not isinstance(zipped, bool):
            raise UserError(f"sweep.zip: {zipped!r:.100} is not true or false")
        listed = {key: values for key, values in table.items() if key != "zip"}
        return cls(tuple((key, _listed(key, values)) for key, values in _flat(listed)), zipped)._checked()

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Sweep":
        """From a command line: ``local.lr=0.01,0.1``, or ``model.widths=[[64], [64, 64]]``."""
        found = []
        for text in texts:
            key, equals, values = text.partition("=")
            if not equals or not key.strip():
                raise UserError(f"--sweep {text}: write it like --sweep local.lr=0.01,0.1")
            several = value_of(values if values.lstrip().startswith("[") else f"[{values}]")
            words = [value_of(word) for word in BETWEEN.split(values)]  # such as names without quotes
            found.append((key.strip(), _listed(key.strip(), several if isinstance(several, list) else words)))
        return cls(tuple(found))._checked()

    def _checked(self) -> "Sweep":
        lengths = {key: len(values) for key, values in self.values}
        for key in lengths:
            word = key if key.startswith(OF_METHODS) else key.partition(".")[0]
            if word in ELSEWHERE:
                raise UserError(f"sweep: '{key}' is not swept: {ELSEWHERE[word]}")
        if not self.zipped and prod(lengths.values()) > MOST:
            raise UserError(f"sweep: its values have more than {MOST:,} combinations: give fewer values")
        if twice := [key for key in lengths if sum(key == other for other, _ in self.values) > 1]:
            raise UserError(f"sweep: {twice[0]} is listed twice, list it once")
        if self.zipped and len({*lengths.values()}) > 1:
            told = ", ".join(f"{key} has {length}" for key, length in lengths.items())
            raise UserError(f"sweep.zip: lists that go together are equally long, but {told}")
        return self

    @property
    def conditions(self) -> tuple[str, ...]:
        """Those of papers."""
        return checked(dict(self.values).get(CONDITIONS, ()), tuple[str, ...], f"sweep.{CONDITIONS}")

    def table(self) -> dict[str, Any]:
        """As a file writes it."""
        return {
            **{key: list(values) for key, values in self.values},
            **({"zip": True} if self.zipped else {}),
        }

    def __len__(self) -> int:
        """How many combinations there are; 1 where nothing is swept."""
        lengths = [len(values) for _, values in self.values]
        return (lengths or [1])[0] if self.zipped else prod(lengths)

    def points(self) -> Iterator[Point]:
        """The settings of each combination."""
        keys, lists = [key for key, _ in self.values], [values for _, values in self.values]
        together = zip(*lists, strict=True) if self.zipped and lists else itertools.product(*lists)
        return (dict(zip(keys, point, strict=True)) for point in together)

    def with_more(self, other: "Sweep") -> "Sweep":
        """With the values of another as well, and its further settings."""
        ours, theirs = dict(self.values), dict(other.values)
        if self.zipped and theirs:
            raise UserError("--sweep adds values to a grid; this comparison pairs them (sweep.zip)")
        joined = dict(ours)
        for key, values in theirs.items():
            known = ours.get(key, ())
            joined[key] = (*known, *(value for value in values if not _holds(known, value, key)))
        return Sweep(tuple(joined.items()), self.zipped)


def _flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Bare keys are tables in tables; their names in one."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _listed(key: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise UserError(f"sweep: {key} = {values!r:.100} is not a list: write {key} = [{values!r:.100}]")
    if not values:
        raise UserError(f"sweep: the list of {key} is empty, give at least one value")
    if len(values) > VALUES:
        raise UserError(f"sweep: {key} has {len(values):,} values, give at most {VALUES:,}")
    twice = [value for place, value in enumerate(values) if _holds(values[:place], value, key)]
    if twice:
        raise UserError(f"sweep: {key} has {twice[0]!r:.100} twice, list it once")
    return tuple(values)


def _holds(values: Sequence[Any], value: Any, key: str) -> bool:
    """Whether it is among them; of cohorts, 1 is a client and 1.0 is everybody."""
    return any(value == other and (key != "cohort" or type(value) is type(other)) for other in values)


def with_settings(methods: Sequence[Method], point: Point) -> tuple[Method, ...]:
    """The methods with the point's settings of their parts."""
    for key, value in point.items():
        if key.startswith(OF_METHODS):
            methods = _changed(methods, key, value)
    return tuple(methods)


def in_words(point: Point) -> str:
    """Without the settings of methods, which their own names show."""
    shared = {key: value for key, value in point.items() if not key.startswith(OF_METHODS)}
    return ", ".join(f"{key}={value}" for key, value in shared.items())


def concerns(method: Method, key: str) -> bool:
    """Whether a swept setting is one of this method."""
    return not key.startswith(OF_METHODS) or key.split(".")[1] in {part.name for part in method.parts}


def value_of_part(methods: Sequence[Method], key: str) -> Any:
    """What a setting like ``method.fedprox.mu`` is in the first method that has it."""
    name, setting = _named(methods, key)
    part = next(part for method in methods for part in method.parts if part.name == name)
    return getattr(part, setting, None)


def _named(methods: Sequence[Method], key: str) -> tuple[str, str]:
    """The part and the setting that a key names."""
    name, dot, setting = key.removeprefix(OF_METHODS).partition(".")
    known = {part.name for method in methods for part in method.parts}
    if not dot:
        raise UserError(f"sweep: {key} names no setting: write it like method.fedprox.mu")
    if name not in known:
        raise UserError(f"sweep: {key}: no method here has a part '{name}'{nearest(name, known)}")
    return name, setting


def _changed(methods: Sequence[Method], key: str, value: Any) -> list[Method]:
    name, setting = _named(methods, key)

    def other(part: Part) -> Part:
        if part.name != name:
            return part
        return build(type(part), {**asdict(part), setting: value}, f"method.{name}")  # type: ignore[call-overload]

    changed = []
    for method in methods:
        named = method.label and concerns(method, key)
        label = f"{method.label} ({setting}={value})" if named else method.label
        changed.append(replace(Method.of(*map(other, method.parts)), label=label))
    return changed
