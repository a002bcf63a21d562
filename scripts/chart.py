"""Charts as SVG, small enough to be kept beside the numbers that they show."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 320, 56, 190, 28, 44
COLOURS = ("#1f6fb2", "#c8553d", "#3f8f5f", "#8a5fb0", "#b8860b", "#4d4d4d", "#d16ba5")
Points = Sequence[tuple[float, float]]


def lines(title: str, series: Mapping[str, Points], x: str, y: str) -> str:
    """One line a series, from zero up."""
    across = [point[0] for points in series.values() for point in points]
    up = [point[1] for points in series.values() for point in points]
    low, high = min(0.0, *up), max(up)
    left, right = min(across), max(across)

    def at(point: tuple[float, float]) -> tuple[float, float]:
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        share = (point[0] - left) / ((right - left) or 1)
        return LEFT + share * wide, TOP + (1 - (point[1] - low) / ((high - low) or 1)) * tall

    body = [label(LEFT, 16, title, "start", "bold")]
    for value in sorted({point[0] for points in series.values() for point in points}, key=float)[
        :: _every(series)
    ]:
        body.append(label(at((value, low))[0], HEIGHT - BOTTOM + 16, f"{value:g}", "middle"))
    for value in (low, (low + high) / 2, high):
        body.append(label(LEFT - 6, at((left, value))[1] + 4, f"{value:.3g}", "end"))
    body.append(label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x, "middle"))
    body.append(label(LEFT - 6, TOP - 6, y, "end"))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(at, points))
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{colour}"/>' for a, b in map(at, points)]
        body.append(label(WIDTH - RIGHT + 14, TOP + 14 + 18 * number, name, "start", colour=colour))
    frame = f'<path d="M{LEFT},{TOP} V{HEIGHT - BOTTOM} H{WIDTH - RIGHT}" fill="none" stroke="#888"/>'
    return picture(WIDTH, HEIGHT, [frame, *body])


def _every(series: Mapping[str, Points]) -> int:
    """Of the values of x, which are written: at most eight."""
    return math.ceil(len({point[0] for points in series.values() for point in points}) / 8)


def picture(width: float, height: float, body: Sequence[str]) -> str:
    """These on white."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *body, "</svg>"]) + "\n"


def label(x: float, y: float, text: str, anchor: str, weight: str = "normal", colour: str = "#222") -> str:
    look = f'font-family="sans-serif" font-size="12" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {look}>{escape(text)}</text>'
