"""What the tests of the command line share: a tiny experiment, and what a command leaves behind."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from support import REPOSITORY

TINY = (REPOSITORY / "tests" / "tiny.toml").read_text()
EXPERIMENT = (
    TINY
    + """
[[method]]
name = "fedprox"
"""
)


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


def contents(directory: Path) -> dict[str, bytes | None]:
    """Every file below a directory with its bytes; None for directories."""
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None
        for path in sorted(directory.rglob("*"))
    }
