"""How runs go, at a glance: a line for each with its rounds, its accuracy so far, its speed and its end."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.table import Table
from rich.text import Text

from fedcohort.cli.console import table_of
from fedcohort.runs.workers.schedule import Pace

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE = 10  # characters of an accuracy curve


@dataclass
class RunLine:
    """What there is to say about one run."""

    method: str
    seed: int
    rounds: int
    done: int = 0
    state: str = "running"
    curve: Sequence[float] = ()  # global accuracy at each evaluation
    groups: float = math.nan
    pace: Pace = field(default_factory=Pace)

    def __str__(self) -> str:
        facts = [
            f"round {self.done}/{self.rounds}",
            f"global accuracy {percent(self.curve[-1])}" if self.curve else "",
            f"{self.groups:.0f} groups" if self.groups > 1 else "",
            _number(self.pace.clients_per_second, "{:.0f} clients/s"),
            _number(self.pace.seconds_left(self.rounds), "{} left", duration),
        ]
        return f"{self.method}, seed {self.seed}: {', '.join(fact for fact in facts if fact)}"


def board(lines: Sequence[RunLine], title: str | Text) -> Table:
    """All runs, one line each."""
    table = table_of(title, padding=(0, 1, 0, 0))
    table.add_column("method", overflow="fold", min_width=12, max_width=36)
    for name in ("seed", "round", "global\naccuracy", "so far", "groups", "clients\n/s", "left"):
        table.add_column(name, justify="left" if name == "so far" else "right", no_wrap=True)
    for line in lines:
        running = line.state == "running"
        left = _number(line.pace.seconds_left(line.rounds), "{}", duration) if running else line.state
        table.add_row(
            Text(line.method),
            str(line.seed),
            f"{line.done}/{line.rounds}",
            percent(line.curve[-1]) if line.curve else "",
            sparkline(line.curve),
            _number(line.groups, "{:.0f}"),
            _number(line.pace.clients_per_second, "{:.0f}") if running else "",
            left,
        )
    return table


def sparkline(values: Sequence[float], width: int = CURVE) -> str:
    """A curve from 0 to 1 in block characters, at most ``width`` of them; unknown values are spaces."""
    step = max(1.0, len(values) / width)
    shown = [values[min(len(values), math.ceil((i + 1) * step)) - 1] for i in range(int(len(values) / step))]
    return "".join(
        " " if math.isnan(value) else BLOCKS[min(len(BLOCKS) - 1, int(value * len(BLOCKS)))]
        for value in shown
    )


def percent(value: float) -> str:
    """``83.1%``; without test samples there is nothing to say."""
    return "unknown" if math.isnan(value) else f"{value:.1%}"


def duration(seconds: float) -> str:
    """``41 s``, ``3:20 min`` or ``2:05 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _number(value: float, text: str, say: Callable[[float], object] = lambda value: value) -> str:
    return text.format(say(value)) if math.isfinite(value) else ""
