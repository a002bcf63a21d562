"""Files of a run directory, which may be damaged or somebody else's: read within bounds, or else named."""

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcohort.util.errors import UserError
from fedcohort.util.settings import fitting

SMALL = 1 << 24  # most bytes of settings and facts
LARGE = 1 << 30  # ... and of tables
TOML = 1 << 20  # ... and of TOML, of which 16 times as much takes ten seconds to read
RESTORE = "restore it"
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # Windows has neither
NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe in the place of a file would let us wait for ever


def cache_folder() -> Path:
    """For what can be had again."""
    return Path(os.environ.get("FEDCOHORT_CACHE") or "~/.cache/fedcohort").expanduser()


def damaged(path: Path, why: object, cure: str = RESTORE) -> UserError:
    return UserError(f"{path} is damaged ({' '.join(str(why).split())[:300]}): {cure}")


def read_bytes(path: Path, limit: int = SMALL, cure: str = RESTORE, start: int = 0) -> bytes:
    """What a file holds from ``start`` on; links, pipes and files beyond all measure are refused."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise damaged(path, "it is not a file", cure)
            if about.st_size > limit:
                raise damaged(path, f"it has {about.st_size:,} bytes", cure)
            file.seek(start)
            return file.read(max(0, about.st_size - start))  # a limit would be allocated
    except FileNotFoundError:
        raise UserError(f"there is no {path}: {cure}") from None
    except OSError as error:
        why = "it is a link" if path.is_symlink() else error.strerror
        raise UserError(f"{path} cannot be read ({why}): {cure}") from None


def read_text(path: Path, cure: str = RESTORE, limit: int = SMALL) -> str:
    try:
        return read_bytes(path, limit, cure).decode()
    except UnicodeDecodeError as error:
        raise damaged(path, error, cure) from None


def read_json(path: Path, cure: str = RESTORE) -> Any:
    return parse_json(read_text(path, cure), path, cure)


def parse_json(text: str, path: Path, cure: str = RESTORE) -> Any:
    """JSON as the standard has it: without NaN and infinity, and with texts that can be written."""
    try:
        found = json.loads(text, parse_constant=_refuse)
        if SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode()  # one without the other is no character
        return found
    except (ValueError, RecursionError) as error:
        raise damaged(path, error, cure) from None


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path, limit=TOML))
    except (ValueError, RecursionError) as error:
        raise damaged(path, f"it is not valid TOML: {error}") from None


def fields(table: Any, hints: Mapping[str, Any], path: Path, cure: str = RESTORE) -> dict[str, Any]:
    """The named entries of a table, each of the kind that its annotation says; others are left out."""
    if not isinstance(table, dict):
        raise damaged(path, f"{table!r:.40} stands where a table should", cure)
    missing = [key for key in hints if key not in table]
    if missing:
        raise damaged(path, f"{missing[0]} is missing", cure)
    try:
        return {key: fitting(table[key], hint, key) for key, hint in hints.items()}
    except (UserError, OverflowError) as error:  # an integer may be too large for a float
        raise damaged(path, error, cure) from None


def refuse_links(directory: Path) -> None:
    """Raises UserError if a file of the directory is a link: what is written to it would go elsewhere."""
    for path in directory.rglob("*"):
        if path.is_symlink():
            raise UserError(f"{path} is a link, and nothing is written through it: put its target there")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
