"""The pictures of docs/replications.md: a paper's claims, and one question under many readings."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from chart import COLOURS as SERIES
from chart import label, picture

from fedcohort.runs.replication.verdicts import Judged
from fedcohort.stats.paired import Paired

COLOURS = {
    "confirmed": "#2f8f5b",
    "weaker": "#9a9a2e",
    "not reproduced": "#8a8a8a",
    "reversed": "#c8553d",
    "undecided": "#7d9dc4",
}
WIDE, LEFT, RIGHT, ROW = (
    720,
    320,
    110,
    16,
)  # pixels: as wide as a page of the site, so that words stay readable
LETTERS = 48  # of a line on the left
LEAST, MOST = -1.5, 2.5  # shares of the paper's difference that are drawn
SCALES = {"paper": "At the paper's scale", "small": "Scaled tests"}


class Axis(NamedTuple):
    """What is drawn from left to right; what lies beyond is drawn at the edge."""

    low: float
    high: float

    def x(self, value: float) -> float:
        within = min(max(value, self.low), self.high)
        return LEFT + (within - self.low) / (self.high - self.low) * (WIDE - LEFT - RIGHT)


def claims(every: Sequence[tuple[str, Judged]]) -> str:
    """Each claim's difference as a share of the paper's, with its interval; those of a scale together."""
    axis, body, y = Axis(LEAST, MOST), [], 0.0
    for scale, title in SCALES.items():
        told = [(judged, judged.ours) for own, judged in every if own == scale and judged.ours]
        if not told:
            continue
        y += 1.5 * ROW
        body.append(label(12, y, title, "start", "bold"))
        for judged, ours in told:
            words, middle, y = _beside(judged.claim.about, y)
            body += words
            body += _bar(axis, middle, ours, judged.paper, COLOURS[judged.verdict])
            verdict = label(
                WIDE - RIGHT + 14, middle + 4, judged.verdict, "start", colour=COLOURS[judged.verdict]
            )
            body.append(verdict)
    return _framed(axis, y, body, {0.0: "no difference", 1.0: "as in the paper"})


def readings(every: Mapping[str, Mapping[str, Judged]]) -> str:
    """Our differences under every reading, in a colour for each method that is compared with."""
    told = {reading: {name: each.ours for name, each in own.items()} for reading, own in every.items()}
    edges = [edge for own in told.values() for ours in own.values() if ours for edge in (ours.low, ours.high)]
    axis, body, y = Axis(min([0.0, *edges]), max([0.0, *edges]) or 1.0), [], 1.5 * ROW
    methods = list(dict.fromkeys(method for own in told.values() for method in own))
    for turn, method in enumerate(methods):
        body.append(label(12 + 140 * turn, y, f"minus {method}", "start", "bold", SERIES[turn]))
    for reading, own in told.items():
        words, middle, y = _beside(reading, y)
        body += words
        for method, ours in own.items():
            turn = methods.index(method)
            body += _bar(axis, middle - 4 + 8 * turn, ours, 1.0, SERIES[turn]) if ours else ()
    marks = {value: f"{value:+.2f}" for value in (axis.low, axis.high)}
    return _framed(axis, y, body, marks | {0.0: "no difference"})


def _beside(text: str, y: float) -> tuple[list[str], float, float]:
    """Words left of a bar, below ``y``, as many lines as they take; where the bar is, and where they end."""
    lines = textwrap.wrap(text, LETTERS)
    first = y + 1.5 * ROW
    words = [label(LEFT - 12, first + ROW * turn, line, "end") for turn, line in enumerate(lines)]
    last = first + ROW * (len(lines) - 1)
    return words, (first + last) / 2 - 4, last


def _bar(axis: Axis, y: float, ours: Paired, unit: float, colour: str) -> Iterator[str]:
    low, high = sorted((axis.x(ours.low / unit), axis.x(ours.high / unit)))
    yield f'<path d="M{low:.1f},{y:.1f} H{high:.1f}" stroke="{colour}" stroke-width="3"/>'
    yield f'<circle cx="{axis.x(ours.mean / unit):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>'


def _framed(axis: Axis, end: float, body: Sequence[str], marks: Mapping[float, str]) -> str:
    """With a dotted line, and words below it, at each mark."""
    tall, lines = end + 2.5 * ROW, []
    for value, words in marks.items():
        x = axis.x(value)
        lines.append(f'<path d="M{x:.1f},{ROW} V{tall - 1.5 * ROW}" stroke="#999" stroke-dasharray="3 3"/>')
        anchor = "end" if value <= 0 else "start"  # away from each other
        lines.append(label(x, tall - 6, words, anchor))
    return picture(WIDE, tall, [*lines, *body])
