"""The papers' files beside this one, and what to say of a name that is in none of them."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from fedcohort.util.errors import UserError


@cache
def tables() -> dict[str, dict[str, Any]]:
    """Each paper's file by the paper's name."""
    beside = (file for file in files(__package__).iterdir() if file.name.endswith(".toml"))
    texts = {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in beside}
    return {paper: tomllib.loads(texts[paper]) for paper in sorted(texts)}


def papers() -> dict[str, str]:
    """The papers' names with their citations."""
    return {name: table["paper"] for name, table in tables().items()}


def known(name: str, entries: Mapping[str, Any], kind: str) -> Any:
    """The entry of that name, or a sentence with the nearest names there are."""
    if name in entries:
        return entries[name]
    close = difflib.get_close_matches(name, entries, n=3)
    meant = f"did you mean {' or '.join(map(repr, close))}?" if close else ""
    raise UserError(f"unknown {kind} '{name}': {meant or 'fedcohort methods --presets lists them'}")
