"""How charts look: colours everybody can tell apart, the same in light and dark."""

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedcohort.stats.label_distances import Array

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's palette, "Color Universal Design" (2008), without black, and yellow, which white swallows.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
INK = ("white", "black", "white", "black", "black", "white")  # readable on each of them
OTHERS = "#8A8A8A"
DIVERGING = [  # through nothing, so that it fits light and dark
    [0, "rgba(213,94,0,1)"],
    [0.5, "rgba(213,94,0,0)"],
    [0.5, "rgba(0,114,178,0)"],
    [1, "rgba(0,114,178,1)"],
]
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # 5 and 6 have no factor in common: 30 looks
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "star")
POINTS = 300  # of a curve; more would not be seen
NAME = 40  # characters of a name in a chart


def _template(ink: str, grid: str, paper: str, full: str) -> dict[str, Any]:
    axis = {"gridcolor": grid, "linecolor": grid, "zerolinecolor": grid, "automargin": True, "ticks": ""}
    scale = [[0, paper], [1, full]]
    return {
        "layout": {
            "font": {"color": ink, "family": "system-ui, sans-serif", "size": 13},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": list(COLOURS),
            "xaxis": axis,
            "yaxis": {**axis, "title": {"standoff": 8}},
            "coloraxis": {"colorscale": scale, "colorbar": {"outlinewidth": 0, "thickness": 12}},
            "hoverlabel": {"align": "left", "bgcolor": paper, "font": {"color": ink}, "bordercolor": grid},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": grid, "activecolor": ink},
            "shapedefaults": {"line": {"color": ink, "width": 1}},
        }
    }


TEMPLATES = {
    "light": _template("#1d2733", "#dfe4ea", "#ffffff", "#00457a"),
    "dark": _template("#e6ebf0", "#36404c", "#1a212a", "#8fd0f5"),
}


def figure(traces: Sequence[Any], x: str, y: str, height: int = 380, **layout: Any) -> "Figure":
    """A figure without a look of its own: the page gives it one that fits light or dark."""
    import plotly.graph_objects as go

    heat = any(isinstance(trace, go.Heatmap) for trace in traces)
    near = {} if heat else {"standoff": 8}  # below a heat-map Plotly would put it on the ticks
    axes = {"xaxis": {"title": {"text": x, **near}}, "yaxis": {"title": {"text": y}}}
    for axis in axes:
        axes[axis] |= layout.pop(axis, {})
    common = {
        "template": {},
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 16, "b": 48},
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top", "x": 0, "itemwidth": 40},
        "hovermode": "closest",
    }
    return go.Figure(list(traces), layout={**common, **axes, **layout})


def look(number: int, reference: bool = False) -> dict[str, Any]:
    """The line of the ``number``-th method: both colour and dash change, so that a line that lies on another
    lets it show through. What is there for reference is grey."""
    colour = OTHERS if reference else COLOURS[number % len(COLOURS)]
    return {"color": colour, "dash": DASHES[number % len(DASHES)], "width": 2}


def mark(number: int) -> dict[str, Any]:
    """The marker of the ``number``-th group: another colour, then another symbol."""
    symbol = SYMBOLS[number // len(COLOURS) % len(SYMBOLS)]
    return {"color": COLOURS[number % len(COLOURS)], "symbol": symbol}


def plain(name: str) -> str:
    """A name as a chart shows it: short, and never taken for markup."""
    return html.escape(name if len(name) <= NAME else name[: NAME - 1] + "…", quote=False)


def plain_each(names: Sequence[str], order: Iterable[int] | None = None) -> list[str]:
    """Names along an axis, where two that look the same would be taken for one."""
    seen: Counter[str] = Counter()
    texts = []
    for number in range(len(names)) if order is None else order:
        text = plain(names[number])
        seen[text] += 1
        texts.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return texts


def thinned(number: int, limit: int = POINTS) -> np.ndarray:
    """At most ``limit`` of ``number`` positions, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, max(number - 1, 0), min(number, limit)).round().astype(int))


def small(values: Any) -> Array:
    """Numbers in half the bytes, precise enough for any screen."""
    return np.asarray(values, dtype=np.float32)
