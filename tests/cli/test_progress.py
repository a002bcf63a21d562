"""What progress says, from numbers a reader can check."""

import math

import pytest
from rich.console import Console

from fedcohort.cli import progress
from fedcohort.cli.board import RunLine, board, duration, sparkline
from fedcohort.cli.progress import Lines, _LineUpdate
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.workers.schedule import Pace


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def text(renderable: object, width: int = 80) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as shown:
        console.print(renderable)
    return shown.get()


def test_pace_is_what_was_done_since_the_first_look() -> None:
    """10 rounds and 60 clients in 5 s, from round 20 on: 12 clients/s, and 70 rounds at 0.5 s are left."""
    clock = Clock()
    pace = Pace(clock)
    assert math.isnan(pace.clients_per_second)
    pace.add(20, 100)
    assert math.isnan(pace.seconds_left(100))
    clock.now = 1.0
    pace.add(20, 100)
    assert math.isnan(pace.clients_per_second)  # no round yet: unknown, not slow
    for seconds, done, trained in ((2.0, 25, 120), (5.0, 30, 160)):
        clock.now = seconds
        pace.add(done, trained)
    assert pace.clients_per_second == 12
    assert pace.seconds_left(100) == 35


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (99, "99 s"), (200, "3:20 min"), (7_500, "2:05 h")]
)
def test_duration(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([], ""),
        ([0.0, 0.5, 1.0], "▁▅█"),
        ([0.0, math.nan, 1.0], "▁ █"),
        ([0.0] * 5 + [1.0] * 5, "▁▁██"),  # four of ten: the 3rd, 5th, 8th and last
    ],
)
def test_sparkline(values: list[float], drawn: str) -> None:
    assert sparkline(values, 4) == drawn


def test_the_board_fits_a_terminal_of_80_columns() -> None:
    pace = Pace(Clock())
    line = RunLine("fedlecc+fedprox(mu=0.01)", 12, 500, 250, "running", [0.1] * 100, 14, pace)
    shown = text(board([line, RunLine("fedavg", 0, 500, 500, "complete")], "1 of 2 runs complete"))
    assert max(map(len, shown.splitlines())) <= 80
    for word in ("250/500", "10.0%", "14", "complete", "clients"):
        assert word in shown


def test_an_accuracy_that_is_not_known_is_called_so() -> None:
    line = RunLine("fedavg", 0, 10, 3, "running", [math.nan])
    assert "global accuracy unknown" in str(line)
    shown = text(board([line], "no test samples"))
    assert "unknown" in shown
    assert "nan" not in shown


def test_while_a_run_waits_for_somebody_to_go_on_no_time_passes() -> None:
    """One that is stopped after two rounds of a second, and goes on an hour later, has seconds left."""
    clock = Clock()
    line = RunLine("fedavg", 0, 10, pace=Pace(clock))
    told = _LineUpdate(line)
    for start in (0, 3600):
        for _ in range(2):
            clock.now += 1
            line.done += 1
            line.pace.add(line.done, 0)
        assert line.pace.seconds_left(10) == 10 - line.done
        told.close(None)
        assert math.isnan(line.pace.seconds_left(10))  # nobody can tell while it waits
        clock.now = start + 3600


def test_lines_are_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """One when a run starts, one after half a minute, one at its end; the rounds between say nothing."""
    clock, console = Clock(), Console(width=200, no_color=True, highlight=False)
    monkeypatch.setattr(progress, "messages", console)
    lines = Lines(1, clock)
    with console.capture() as shown:
        told = lines.begin("fedavg", 0, 100)
        for number in range(1, 61):
            clock.now = number
            told.line.done, told.line.curve = number, [0.5]
            told.line.pace.add(number, 6 * number)
            told.then(told.line)
        lines.end(Outcome("fedavg", 0, None, {"global.accuracy": 0.75}))
    start, half, whole, end = shown.get().splitlines()
    assert start == "[1/1] fedavg, seed 0: 100 rounds ..."
    assert half.startswith(
        "    fedavg, seed 0: round 30/100, global accuracy 50.0%, 6 clients/s, 70 s left, "
    )
    assert half.endswith(" MB")
    assert "round 60/100" in whole
    assert end == "    fedavg, seed 0: global accuracy 75.0% after 60.0 s"
