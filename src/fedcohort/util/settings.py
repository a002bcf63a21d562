"""Tables of settings into frozen dataclasses, with errors that name the key and the cure.

A class says all there is to know about its settings: field names are the keys, annotations are the types,
``Annotated[float, at_least(0)]`` is the range, the field's default is the default; whatever its range, no
number is so large or small that computing with it would overflow (WHOLE, LARGE, SMALL). The same declaration
serves TOML, the command line, ``fedcohort methods`` and the generated documentation.
"""

import dataclasses
import difflib
import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from fedcohort.util.errors import UserError
from fedcohort.util.expression import FIRST

T = TypeVar("T")
WHOLE = 2**53  # beyond it floats skip whole numbers
LARGE, SMALL = 1e18, 1e-18  # their squares are still numbers in single precision


class Limit(NamedTuple):
    """A range a number must keep to; ``text`` completes the sentence "must be ..."."""

    text: str
    holds: Callable[[Any], bool]


def at_least(low: float) -> Limit:
    """In declarations: ``mu: Annotated[float, at_least(0)]`` refuses less, in words."""
    return Limit(f"at least {_plain(low)}", lambda value: value >= low)


def above(low: float) -> Limit:
    """Refuses this number and less: see :func:`at_least`."""
    return Limit(f"above {_plain(low)}", lambda value: value > low)


def at_most(high: float) -> Limit:
    """Refuses more: see :func:`at_least`."""
    return Limit(f"at most {_plain(high)}", lambda value: value <= high)


def below(high: float) -> Limit:
    """Refuses this number and more: see :func:`at_least`."""
    return Limit(f"below {_plain(high)}", lambda value: value < high)


def between(low: float, high: float) -> Limit:
    """Both are allowed: see :func:`at_least`."""
    return Limit(f"between {_plain(low)} and {_plain(high)}", lambda value: low <= value <= high)


class Tried(NamedTuple):
    """Where tuning looks for the value of a setting."""

    low: float
    high: float

    @property
    def by_magnitude(self) -> bool:
        """Whether 0.01 is as far from 0.1 as 0.1 from 1: where it is far from the least to the most."""
        return self.low > 0 and self.high >= 30 * self.low


tune = Tried  # in declarations: Annotated[float, above(0), tune(1e-3, 1)]


def _plain(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"


class Setting(NamedTuple):
    """One documented setting of a class."""

    name: str
    type: str
    default: Any
    range: str
    required: bool


def nearest(word: str, choices: Iterable[str]) -> str:
    """``", did you mean 'steps'?"``, or the list of choices when nothing is near."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1)
    if close:
        return f", did you mean '{close[0]}'?"
    return f"; known: {', '.join(choices)}" if choices else ""


def settings_of(cls: type) -> list[Setting]:
    """What ``cls`` can be given, in the order of its fields."""
    hints, searched = get_type_hints(cls, include_extras=True), tried_in(cls)
    out = []
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        hint, limits = _unwrap(hints[field.name])
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        required = default is dataclasses.MISSING
        text = " and ".join(limit.text for limit in limits)
        if (where := searched.get(field.name)) is not None:
            text = "; ".join(filter(None, (text, f"tuned from {where.low:g} to {where.high:g}")))
        out.append(Setting(field.name, _describe(hint), None if required else default, text, required))
    return out


def tried_in(cls: type) -> dict[str, Tried]:
    """The settings of ``cls`` that are worth tuning, and where to look."""
    hints = get_type_hints(cls, include_extras=True)
    extras = {name: get_args(hint)[1:] for name, hint in hints.items() if get_origin(hint) is Annotated}
    return {name: each for name, several in extras.items() for each in several if isinstance(each, Tried)}


def build(cls: type[T], table: Mapping[str, Any], path: str) -> T:
    """An instance of the dataclass ``cls`` from a table; mistakes name ``path.key``."""
    hints = get_type_hints(cls, include_extras=True)
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        if key == FIRST:
            if not known:
                raise UserError(f"{path} takes no settings: write it without ({value!r:.50})")
            key = next(iter(known))
            if key in table:
                raise UserError(f"{_join(path, key)}: given twice, once without its name")
        if key not in known:
            raise UserError(f"{_join(path, key)}: unknown{nearest(key, known)}")
        values[key] = checked(value, hints[key], _join(path, key))
    for name, field in known.items():
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if missing and name not in values:
            raise UserError(f"{_join(path, name)}: missing, and it has no default")
    return cls(**values)


def checked(value: Any, hint: Any, path: str) -> Any:
    """A setting: ``value`` as the annotation wants it, and of a size that settings have, or a UserError."""
    result = fitting(value, hint, path)
    if (range_ := _beyond(result)) is not None:
        raise UserError(f"{path}: {value!r:.100} must be {range_}")
    return result


def fitting(value: Any, hint: Any, path: str) -> Any:
    """``value`` as the annotation wants it (an int for a float is welcome), or a UserError."""
    hint, limits = _unwrap(hint)
    result, fits = _fit(value, hint)
    if not fits:
        raise UserError(f"{path}: {value!r:.100} is not {_article(_describe(hint))}")
    for limit in limits:
        if isinstance(result, int | float) and not isinstance(result, bool) and not limit.holds(result):
            raise UserError(f"{path}: {value!r:.100} must be {limit.text}")
    return result


def _beyond(value: Any) -> str | None:
    """The range that every number must keep to, if this one, or one of these, does not."""
    if isinstance(value, tuple):
        return next((text for item in value if (text := _beyond(item))), None)
    if isinstance(value, int):
        return None if abs(value) <= WHOLE else f"between {-WHOLE} and {WHOLE}"
    if not isinstance(value, float) or value == 0 or SMALL <= abs(value) <= LARGE:
        return None
    return f"0 or between {SMALL:g} and {LARGE:g} in size" if math.isfinite(value) else "finite"


def _fit(value: Any, hint: Any) -> tuple[Any, bool]:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return value, True
    if hint is None or hint is type(None):
        return None, value is None
    if origin is Annotated:
        inner, fits = _fit(value, args[0])
        return inner, fits and all(limit.holds(inner) for limit in args[1:] if isinstance(limit, Limit))
    if origin in (Union, types.UnionType):
        exact = [option for option in args if option is type(value)]  # 1.0 stays a float in int | float
        for option in (*exact, *args):
            fitted, fits = _fit(value, option)
            if fits:
                return fitted, True
        return value, False
    if origin is Literal:
        return value, any(value == option and type(value) is type(option) for option in args)
    if origin is tuple and args[-1:] == (Ellipsis,):
        if not isinstance(value, list | tuple):
            return value, False
        fitted = [_fit(item, args[0]) for item in value]
        return tuple(item for item, _ in fitted), all(fits for _, fits in fitted)
    if origin is dict or hint is dict:
        return value, isinstance(value, dict)
    if hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        return (_as_float(value) if fits else value), fits
    if hint is int:
        whole = isinstance(value, float) and value.is_integer()
        fits = (isinstance(value, int) and not isinstance(value, bool)) or whole
        return (int(value) if fits else value), fits
    return value, isinstance(value, hint)


def _as_float(number: float) -> float:
    return float(number) if isinstance(number, float) or abs(number) < sys.float_info.max else math.inf


def _unwrap(hint: Any) -> tuple[Any, list[Limit]]:
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        return base, [extra for extra in extras if isinstance(extra, Limit)]
    return hint, []


def _describe(hint: Any, several: bool = False) -> str:
    """What fits, in words: one, or ``several`` in a list."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        limits = " and ".join(limit.text for limit in args[1:] if isinstance(limit, Limit))
        return f"{_describe(args[0], several)} {limits}".strip()
    if origin in (Union, types.UnionType):
        return " or ".join(_describe(option, several) for option in args)
    if origin is Literal:
        return " or ".join(repr(option) for option in args)
    ending = "s" if several else ""
    if origin is tuple:
        return f"list{ending} of {_describe(args[0], several=True)}"
    names = {float: "number", int: "whole number", str: "text", dict: "table"}
    if (name := names.get(origin or hint)) is not None:
        return name + ending
    return {type(None): "nothing", bool: "true or false"}.get(hint, getattr(hint, "__name__", str(hint)))


def _article(words: str) -> str:
    if words.startswith(("'", "true", "nothing", "text")):
        return words
    return f"a {words}"


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
