"""What happened to which client in a run on several machines, as its directory tells."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from fedcohort.util.files import LARGE, damaged, read_bytes

LOG = "flower.log"  # in words, for people
EVENTS = "events.csv"  # the same about clients, as a table


class Event(NamedTuple):
    """One thing that happened to one client."""

    time: str
    round: int  # in which it happened
    client: str
    what: str


def read_events(directory: Path) -> list[Event]:
    """What happened in the run of this directory, in order; nothing in a simulation."""
    path = directory / EVENTS
    if not path.exists():
        return []
    try:
        lines = list(csv.reader(io.StringIO(read_bytes(path, LARGE).decode(), newline="")))[1:]
        return [Event(time, int(number), client, what) for time, number, client, what in lines]
    except (ValueError, csv.Error) as error:
        raise damaged(path, error) from None


def summed_up(events: Sequence[Event]) -> dict[str, str]:
    """By client: ``went offline (rounds 2 and 3); is back (round 4)``."""
    rounds: dict[str, dict[str, dict[str, None]]] = {}  # the last one for its order, and each round once
    for event in events:
        rounds.setdefault(event.client, {}).setdefault(event.what, {})[str(event.round)] = None
    return {
        client: "; ".join(_in_rounds(what, list(when)) for what, when in own.items())
        for client, own in rounds.items()
    }


def _in_rounds(what: str, rounds: Sequence[str]) -> str:
    if len(rounds) == 1:
        return f"{what} (round {rounds[0]})"
    return f"{what} (rounds {', '.join(rounds[:-1])} and {rounds[-1]})"
