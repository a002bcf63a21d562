"""One comparison is one row: two numbers or paths that must agree, or that differ for a stated reason.

A difference with a reason is a claim too: when a peer mends its code the row no longer differs, and the
check fails until the reason is taken out.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.runners import RunError, environment

TOLERANCE = 1e-5  # the greatest difference that rounding explains
APART = 1e-3  # the smallest that it does not


@dataclass(frozen=True)
class Row:
    """What fedcohort and somebody else make of the same input."""

    what: str
    ours: str
    theirs: str
    difference: float  # the greatest; NaN when the other one did not run
    scale: float  # of what is compared, to judge the difference by
    reason: str = ""  # why they differ; empty: they must not
    skipped: str = ""  # why nothing was compared; empty: it was

    @property
    def holds(self) -> bool:
        if self.skipped:
            return True
        return not self.difference < APART if self.reason else self.difference <= TOLERANCE

    @property
    def verdict(self) -> str:
        if not self.holds:
            return "UNEXPECTED"
        if self.skipped:
            return f"skipped: {self.skipped}"
        if isnan(self.difference):
            return "does not run"
        return "differs" if self.reason else "same"


@dataclass(frozen=True)
class Reason:
    """Why a package differs; each ``{}`` of the text becomes the place of a line of its source."""

    package: str
    says: str
    lines: tuple[tuple[str, str], ...] = ()  # file, and a fragment that only the line meant holds

    def __str__(self) -> str:
        return self.says.format(*(self.place(*line) for line in self.lines))

    def place(self, file: str, fragment: str) -> str:
        """``file:line``, read from the installed package."""
        (packages,) = environment(self.package).glob("lib/python3*/site-packages")
        return place(packages, file, fragment)


def place(folder: Path, file: str, fragment: str) -> str:
    """``file:line`` of the one line of a file in this folder that holds the fragment."""
    try:
        lines = (folder / file).read_text().splitlines()
    except OSError as error:
        raise RunError(f"{folder / file} cannot be read: {error.strerror}") from None
    hits = [number for number, line in enumerate(lines, 1) if fragment in line]
    if len(hits) != 1:
        raise RunError(f"{file} holds {fragment!r} in {len(hits)} lines: revise the reason")
    return f"`{file}:{hits[0]}`"


class Pair(NamedTuple):
    """A method of ours, a run of theirs, and why they differ if they do."""

    what: str
    ours: str
    theirs: str
    reason: Reason | None = None

    def row(self, ours: ArrayLike, theirs: ArrayLike, init: np.ndarray) -> Row:
        """Compares two paths ``[rounds, P]`` of a model from ``init``; the scale is how far it moved.

        Instead of a path, theirs may be the one error that ended it.
        """
        reason = str(self.reason) if self.reason else ""
        return compared(self.what, (f"`{self.ours}`", ours), (self.theirs, theirs), reason, init)


def compared(
    what: str,
    ours: tuple[str, ArrayLike],
    theirs: tuple[str, ArrayLike],
    reason: str = "",
    since: ArrayLike = 0.0,
) -> Row:
    """Compares two arrays, each with what it is called; the scale is how far ours is from ``since``.

    Instead of an array, theirs may be the one error that ended it.
    """
    a, b = np.asarray(ours[1], dtype=np.float64), np.asarray(theirs[1])
    scale = float(np.abs(a - since).max())
    if b.dtype.kind == "U":
        return Row(what, ours[0], f"{theirs[0]}: {b[0]}", float("nan"), scale, reason)
    if a.shape != b.shape:
        raise RunError(f"{what}: ours is {a.shape}, theirs {b.shape}")
    return Row(what, ours[0], theirs[0], float(np.abs(a - b).max()), scale, reason)


def values(what: str, ours: float, theirs: float, reason: Reason | str = "") -> Row:
    """Compares two numbers."""
    return Row(what, f"{ours:.6f}", f"{theirs:.6f}", abs(ours - theirs), abs(ours), str(reason))


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown, with the reasons below."""
    lines = ["| what | ours | theirs | difference | scale | verdict |", "|---|---|---|---|---|---|"]
    reasons: list[str] = []
    for row in rows:
        mark = ""
        if row.reason:
            reasons += [] if row.reason in reasons else [row.reason]
            mark = f" ({reasons.index(row.reason) + 1})"
        gap = "-" if isnan(row.difference) else f"{row.difference:.1e}"
        scale = "-" if isnan(row.scale) else f"{row.scale:.2g}"
        cells = row.what, row.ours, row.theirs, gap, scale, row.verdict + mark
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, *(f"\n{number}. {text}" for number, text in enumerate(reasons, 1))])
