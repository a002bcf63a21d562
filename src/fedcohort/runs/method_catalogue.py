"""What ``fedcohort methods`` says of each method, read off its file."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Hashable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from fedcohort.core.method import DEFAULTS, METHODS, Method, roles_of
from fedcohort.core.roles import USES, Part
from fedcohort.runs.client_messages import REFERENCE, Exchanged, reference
from fedcohort.util.settings import settings_of

Both = tuple[list[Exchanged], list[Exchanged]]
SECTIONS = {"Equation:": "equation", "Where we differ:": "differences"}  # of a method file's docstring


def describe(name: str) -> dict[str, Any]:
    """Everything about one method, or about a combination like ``fedavg+fedprox(mu=0.1)``, ready for JSON."""
    if "+" in name or "(" in name:
        return _combination(Method.parse(name))
    cls = METHODS.get(name)
    part, remarks = cls(), remarks_on(cls)
    exchanged = _exchanged(Method.of(part))
    return {
        "name": name,
        "roles": roles_of(cls),
        "reference": part.pooled or part.silent,
        "default_for": [role for role, default in DEFAULTS.items() if default == name],
        "title": " ".join(inspect.cleandoc(cls.__doc__ or "").partition("\n\n")[0].split()),
        **read_story(inspect.getdoc(sys.modules[cls.__module__]) or ""),
        "parameters": [
            {**setting._asdict(), "about": remarks.get(setting.name, "")} for setting in settings_of(cls)
        ],
        "needs": {use: USES[use] for use in sorted(part.uses())},
        "sends": sends(part, exchanged),
        **_messages(exchanged),
        "file": inspect.getsourcefile(cls),
    }


def _combination(method: Method) -> dict[str, Any]:
    """Which part answers which question, what they need together, and what clients are sent and tell."""
    needs = {use: USES[use] for use in sorted(method.uses)}
    return {
        "name": str(method),
        "parts": [_part(part) for part in method.parts],
        "needs": needs,
        **_messages(_exchanged(method)),
    }


def _exchanged(method: Method) -> Both:
    """What leaves a client, and what it receives, with a model of known size."""
    return ([], []) if method.pooled else reference(method)


def _messages(exchanged: Both) -> dict[str, Any]:
    leaves, receives = exchanged
    return {
        "reference_model": REFERENCE,
        "leaves": [one._asdict() for one in leaves],
        "receives": [one._asdict() for one in receives],
    }


def _part(part: Part) -> dict[str, Any]:
    about = describe(part.name)
    settings = {each["name"]: getattr(part, each["name"]) for each in about["parameters"]}
    return {**{key: about[key] for key in ("name", "roles", "title")}, "settings": settings}


def read_story(text: str) -> dict[str, str]:
    """What a method's file opens with: its paper, remarks, equation, and where it differs from the paper."""
    lines: dict[str, list[str]] = {part: [] for part in ("paper", "remarks", *SECTIONS.values())}
    part = "paper"
    for line in text.splitlines():
        if line in SECTIONS:
            part = SECTIONS[line]
        else:
            lines[part].append(line)
            part = "remarks" if part == "paper" and not line else part
    story = {part: textwrap.dedent("\n".join(own)).strip("\n") for part, own in lines.items()}
    return {part: own if part == "equation" else _flow(own) for part, own in story.items()}


def _flow(text: str) -> str:
    """Prose without its line breaks, except between paragraphs and before the items of a list."""
    return re.sub(r"(?<!\n)\n(?!\n|- ) *", " ", text)


def remarks_on(cls: type) -> Mapping[str, str]:
    """The comment behind each field of a class: the one place where a parameter is explained."""
    return _remarks_on(cast(Hashable, cls))


@cache  # Python reads the whole file to find a class in it
def _remarks_on(cls: Any) -> Mapping[str, str]:
    lines = inspect.getsource(cls).splitlines()
    (definition,) = ast.parse("\n".join(lines)).body
    assert isinstance(definition, ast.ClassDef)  # noqa: S101  # the source of a class
    remarks = {}
    for field in definition.body:
        if isinstance(field, ast.AnnAssign) and field.end_lineno is not None:
            tail = lines[field.end_lineno - 1][field.end_col_offset :]
            remarks[ast.unparse(field.target)] = tail.partition("#")[2].strip()
    return MappingProxyType(remarks)


def sends(part: Part, exchanged: Both) -> str:
    """What travels each round, in words."""
    if part.pooled:
        return "all training data, once"
    if part.silent:
        return "nothing"
    counted = ([own for own in each if own.bytes and own.message != "evaluation"] for each in exchanged)
    up, down = ("; ".join(f"{own.bytes:,} bytes {own.when}" for own in each) for each in counted)
    return f"down {down}; up {up} ({REFERENCE})"


def catalogue() -> list[dict[str, Any]]:
    return [describe(name) for name in METHODS.names()]
