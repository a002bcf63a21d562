"""What happens to clients of a deployment: said at once, and kept as a table beside the results.

``note`` is called wherever something happens to a client; a :class:`EventLog` follows one run and knows which
round it is.
"""

import csv
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fedcohort.core.evaluate import VALIDATION, Row
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.runs.events import EVENTS, LOG, Event, read_events, summed_up
from fedcohort.runs.run import Callback

log = logging.getLogger("fedcohort.flower")


def note(client: str, what: str) -> None:
    """Something happened to a client."""
    log.warning("%s %s", client, what, extra={"client": client, "what": what})


class EventLog(Callback):
    """A callback of a run: says what each round came to, and writes down what is noted meanwhile."""

    def __init__(self, directory: Path, rounds: int) -> None:
        self.directory, self.rounds = directory, rounds
        self.clients: Sequence[str] = ()  # their names, once they are known
        text = logging.FileHandler(directory / LOG, encoding="utf-8", errors="backslashreplace")
        text.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self.events = _Events(directory / EVENTS)
        self.handlers = text, self.events

    def __enter__(self) -> "EventLog":
        for handler in self.handlers:
            log.addHandler(handler)
        log.setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        for handler in self.handlers:
            log.removeHandler(handler)
            handler.close()

    def go_on(self, done: int) -> None:
        """So many rounds were completed before."""
        self.events.round = done + 1

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        values = {row.key: row.value for row in rows if row.overall}
        for client in report.spoilt.tolist():
            note(self.clients[client], "is refused: with its update the model would not be a number")
        words = [f"{len(report.answered)} of {len(report.selected)} clients trained"]
        words += [f"{values[key]:.0f} {key}" for key in ("lost", "rejected") if values.get(key)]
        words.append(f"{values.get('messages', 0):.0f} messages")
        for before in ("", VALIDATION):
            if (accuracy := values.get(f"{before}global.accuracy")) is not None:
                words.append(f"global accuracy {accuracy:.1%}{' of validation samples' * bool(before)}")
        log.info("round %d of %d: %s", state.round, self.rounds, ", ".join(words))
        self.go_on(state.round)
        return False

    def close(self, state: State) -> None:
        """Who met with something, in one line each."""
        for client, what in summed_up(read_events(self.directory)).items():
            log.info("in this run, %s: %s", client, what)


class _Events(logging.Handler):
    """Writes what is noted to a table, at once: a server may be killed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.round = 1  # that goes on
        self.file = path.open("a", newline="", encoding="utf-8", errors="backslashreplace")
        self.writer = csv.writer(self.file, lineterminator="\n")
        if not path.stat().st_size:
            self.writer.writerow(Event._fields)

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "client"):
            when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="seconds")
            self.writer.writerow(Event(when, self.round, record.client, getattr(record, "what", "")))
            self.file.flush()

    def close(self) -> None:
        self.file.close()
        super().close()


@contextmanager
def said_aloud() -> Iterator[None]:
    """Inside, the log is also printed: Flower passes on to 'flwr run --stream' what the ServerApp prints."""
    voice = logging.StreamHandler(sys.stdout)
    voice.setFormatter(logging.Formatter("%(levelname)s :      %(message)s"))
    log.addHandler(voice)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(voice)
