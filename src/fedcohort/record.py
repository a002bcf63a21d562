"""Run directories: what was asked, what it ran on, what came out, and where to go on from. Never overwritten.

======================= ==============================================================================
config.toml             the experiment file of this one run
env.json                versions, machine, command, seconds, how the data were read and their fingerprint
table.csv               the long table ``round, scope, client, group, metric, value``, written as it goes
state.safetensors       the last checkpoint; state.previous.safetensors is the one before
clients/                only where clients remember much: a file for each, which the checkpoints refer to
result.json             the final numbers; its presence means that the run is complete
======================= ==============================================================================

A run can be killed at any moment: opening its directory again goes on from the last checkpoint, or from the
start before the first one, to the same bytes.
"""

import csv
import io
import json
import os
import platform
import re
import sys
import time
import tomllib
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w
import torch

from fedcohort import checkpoint
from fedcohort.core.loop import Report
from fedcohort.core.parts import Clients
from fedcohort.core.shelf import Memories, Reopen, Shelf
from fedcohort.core.state import State, pack, unpack
from fedcohort.errors import UserError
from fedcohort.evaluate import Row
from fedcohort.experiment import config_hash, difference

CONFIG = "config.toml"
ENVIRONMENT = "env.json"
ROSTER = "roster.safetensors"  # in a deployment: who takes part, and what they told of their data
CLIENTS = "clients"  # a folder for what clients remember, if it is too much for the checkpoint
CHECKPOINT_EVERY = 10  # rounds


def new_directory(parent: Path, name: str) -> Path:
    """``parent/name-001``, or the next free number; made now, so that no two runs share it."""
    name = _safe(name)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1_000_000):
            path = parent / f"{name}-{number:03d}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    except OSError as error:
        raise UserError(f"cannot write results to {parent}: {error.strerror}; choose another --out") from None
    raise UserError(f"{parent} is full of runs called {name}: choose another --out")


def run_name(table: dict[str, Any]) -> str:
    """``<method or its label>-<config hash>-s<seed>``, safe as a directory name."""
    asked = table["method"][0]
    method = _safe(re.sub(r"\(.*?\)", "", asked.get("label", asked["name"])))
    return f"{method[:80]}-{config_hash(table)}-s{table['seeds'][0]}"


def _safe(name: str) -> str:
    return re.sub(r"[^\w+.-]+", "_", name)


class Recorder:
    """A callback that keeps a run directory."""

    def __init__(
        self,
        directory: Path,
        table: dict[str, Any],
        fingerprint: str,
        every: int = CHECKPOINT_EVERY,
        reopen: Reopen | None = None,
        read: str = "",
    ) -> None:
        """``reopen`` finds clients' memories if they are not in the directory; ``read`` says how the data
        were read."""
        self.directory, self.config, self.fingerprint, self.every = directory, table, fingerprint, every
        self.read = read
        self.reopen: Reopen = reopen or partial(Shelf.reopen, directory / CLIENTS)
        self.saved = -1  # round of the last checkpoint
        self.in_use: deque[Clients] = deque(maxlen=2)  # what the two checkpoints refer to must not be removed
        # The last round whose rows are all in the table, and the table's length then: assigned together,
        # because Ctrl-C may come between any two statements.
        self.complete: tuple[State, int] | None = None

    def open(self) -> tuple[State, list[Row]] | None:
        """Where to go on from: the last checkpoint and the rows before it, or None for the start."""
        check_config(self.directory, self.config)
        if checkpoint.exists(self.directory):
            return self._resume()
        self._start()
        return None

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)  # it is there if a run was killed very early
        self._describe()
        self._open("w")
        self._write([Row._fields])

    def _resume(self) -> tuple[State, list[Row]]:
        """Rows after the checkpoint are cut off: they will come again."""
        tensors, facts = checkpoint.load(self.directory)
        if self.fingerprint != facts["fingerprint"]:
            raise UserError(f"{self.directory}: the data changed since the run was started: restore them")
        state, size = unpack(tensors, self.reopen), facts["table_bytes"]
        path = self.directory / "table.csv"
        if not path.exists() or path.stat().st_size < size:
            raise UserError(f"{path} is shorter than its checkpoint says: start the run again")
        os.truncate(path, size)
        rows = read_table(path)
        self._describe(only_missing=True)
        self.saved, self.complete = state.round, (state, size)
        self.in_use.append(state.clients)
        self._open("a")
        return state, rows

    def _describe(self, only_missing: bool = False) -> None:
        """Writes down what is run, and on what."""
        facts = {**environment(), "fingerprint": self.fingerprint, "read": self.read}
        texts = {CONFIG: tomli_w.dumps(self.config), ENVIRONMENT: json.dumps(facts, indent=2) + "\n"}
        for name, text in texts.items():
            if not (only_missing and (self.directory / name).exists()):
                checkpoint.write_atomically(self.directory / name, text.encode())

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        self._write(rows)
        self.complete = state, self.file.tell()
        if state.round % self.every == 0:
            self._save()
        return False

    def close(self, state: State) -> None:
        """Keeps the last complete round; ``state`` may be one further, if the run was stopped before its
        rows came."""
        self._save()
        self.file.close()
        self._add_time()

    def _add_time(self) -> None:
        """Adds the seconds since the directory was opened to those of earlier parts of the run."""
        path = self.directory / ENVIRONMENT
        facts = json.loads(path.read_text(encoding="utf-8"))
        seconds = facts.get("seconds", 0) + time.monotonic() - self.opened
        text = json.dumps({**facts, "seconds": round(seconds, 2)}, indent=2) + "\n"
        checkpoint.write_atomically(path, text.encode())

    def _save(self) -> None:
        if self.complete is None or self.complete[0].round == self.saved:
            return
        state, size = self.complete
        os.fsync(self.file.fileno())  # the checkpoint must not know more than the table
        facts = {"config": self.config, "fingerprint": self.fingerprint, "table_bytes": size}
        if isinstance(state.clients, Memories):
            state.clients.flush()
        checkpoint.save(self.directory, pack(state), facts)
        self.in_use.append(state.clients)
        self.saved = state.round

    def finish(self, metrics: dict[str, float]) -> None:
        """Marks the run as complete."""
        text = json.dumps(jsonable(metrics), indent=2) + "\n"
        checkpoint.write_atomically(self.directory / "result.json", text.encode())

    def _open(self, mode: str) -> None:
        self.opened = time.monotonic()
        self.file = (self.directory / "table.csv").open(mode, newline="", encoding="utf-8")
        self.writer = csv.writer(self.file, lineterminator="\n")

    def _write(self, rows: Sequence[Any]) -> None:
        self.writer.writerows(rows)
        self.file.flush()


def check_config(directory: Path, table: dict[str, Any]) -> None:
    """Refuses a run directory whose settings, as written or as last used, are not these."""
    kept = []
    if (directory / CONFIG).exists():
        try:
            kept.append(tomllib.loads((directory / CONFIG).read_text(encoding="utf-8")))
        except ValueError as error:
            raise UserError(f"{directory / CONFIG} is not valid TOML ({error}): restore it") from None
    if checkpoint.exists(directory):
        kept.append(checkpoint.load(directory)[1]["config"])
    for theirs in kept:
        if (change := difference(table, theirs)) is not None:
            raise UserError(
                f"{directory} is of another experiment ({change}): undo that change, or start a new run"
            )


def read_result(directory: Path) -> dict[str, float] | None:
    """The final numbers of a complete run, or None."""
    path = directory / "result.json"
    if not path.exists():
        return None
    try:
        numbers = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        cure = f"delete it, and 'fedcohort run --resume {directory}' writes it again"
        raise UserError(f"{path} is damaged: {cure}") from None
    return {key: float("nan") if value is None else value for key, value in numbers.items()}


def read_table(path: Path, growing: bool = False) -> list[Row]:
    """The rows of a table.csv; of one that is ``growing``, those that are completely written."""
    try:
        text = path.read_bytes().decode()
        whole = text[: text.rfind("\n") + 1] if growing else text
        lines = csv.reader(io.StringIO(whole, newline=""))
        if next(lines, None) != list(Row._fields):
            raise ValueError("its first line is not the header")
        return [Row(int(line[0]), line[1], line[2], line[3], line[4], float(line[5])) for line in lines]
    except FileNotFoundError:
        raise UserError(f"there is no {path}: restore it, or start the run again") from None
    except (ValueError, IndexError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}): start the run again") from None


def environment() -> dict[str, Any]:
    """Where and with what a run was made."""
    packages = ("fedcohort", "torch", "numpy", "scipy", "scikit-learn")
    return {
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def jsonable(metrics: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN and no infinity: null stands for both."""
    return {key: value if abs(value) < float("inf") else None for key, value in metrics.items()}
