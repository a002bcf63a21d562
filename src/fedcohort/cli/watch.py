"""Shows runs that another process carries out, in the terminal, until they end."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedcohort.cli.board import RunLine, board
from fedcohort.cli.progress import EVERY
from fedcohort.runs.outcomes.conditions import in_words
from fedcohort.runs.status import Followers, Status
from fedcohort.runs.workers.schedule import Pace

POLL = 0.5  # seconds between two looks


def watch(directory: Path, console: Console, once: bool = False) -> list[Status]:
    """Follows the run or comparison in ``directory`` until nobody is at work there; ends with a board."""
    followers, paces = Followers(directory), dict[Path, Pace]()
    looks = _looks(followers, once)
    if console.is_terminal and not once:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            for statuses in looks:
                live.update(_board(followers, statuses, paces), refresh=True)
    else:
        printed: dict[Path, float] = {}
        for statuses in looks:
            if not once:
                _print_news(statuses, paces, printed, console)
    console.print(_board(followers, statuses, paces))
    for status in statuses:
        if status.trouble:
            console.print(status.trouble, markup=False, soft_wrap=True)
    return statuses


def _looks(followers: Followers, once: bool) -> Iterator[list[Status]]:
    """What there is to see, again and again; the last look comes after the last round."""
    while True:
        before = followers.look()
        at_work = not once and followers.at_work(before)
        yield before if at_work else followers.look()
        if not at_work:
            return
        time.sleep(POLL)


def _board(followers: Followers, statuses: Sequence[Status], paces: dict[Path, Pace]) -> Table:
    complete = sum(status.state == "complete" for status in statuses)
    title = Text(f"{followers.home}: {complete} of {followers.planned} runs complete")
    return board([_line(status, paces) for status in statuses], title)


def _line(status: Status, paces: dict[Path, Pace]) -> RunLine:
    pace = paces.setdefault(status.directory, Pace())
    pace.add(status.done, status.trained)
    groups = status.numbers.get("groups", float("nan"))
    seen = status.curve, groups, pace
    method = ", ".join(filter(None, (status.method, in_words(status.settings))))
    return RunLine(method, status.seed, status.rounds, status.done, status.state, *seen)


def _print_news(
    statuses: Sequence[Status], paces: dict[Path, Pace], printed: dict[Path, float], console: Console
) -> None:
    """A line for each running run, now and then."""
    for status in statuses:
        now, run = time.monotonic(), status.directory
        if status.state == "running" and now - printed.get(run, -EVERY) >= EVERY:
            printed[run] = now
            console.print(str(_line(status, paces)), markup=False, soft_wrap=True)
