"""Run directories: what was asked, what it ran on, what came out, and where to go on from. Never overwritten.

======================= ==============================================================================
config.toml             the experiment file of this one run
about.json              what a report says of the method, so that it needs none of its code
roster.safetensors      the clients, their sizes and, unless withheld, their label counts as revealed
preparation.json        how rows become examples: columns, categories, words
env.json                versions, machine, command, seconds, how the data were read and their fingerprint
table.csv               the long table ``round, scope, client, group, metric, value``, written as it goes
state.safetensors       the last checkpoint; state.previous.safetensors is the one before
clients/                only where clients remember much: a file for each, which the checkpoints refer to
own.safetensors         only where clients train the model that serves them further: what each of them has
result.json             the final numbers; its presence means that the run is complete
======================= ==============================================================================

A run can be killed at any moment: opening its directory again goes on from the last checkpoint, or from the
start before the first one, to the same bytes.
"""

import csv
import errno
import hashlib
import io
import itertools
import json
import os
import platform
import re
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import torch

from fedcohort.core.client_store import Memories, Reopen, StoredMemories
from fedcohort.core.evaluate import Row
from fedcohort.core.method import Method
from fedcohort.core.records import Clients
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State, pack, renamed, unpack
from fedcohort.data.preparation import Preparation
from fedcohort.data.revealed import Revealed
from fedcohort.models.flat import Weights
from fedcohort.runs.about import ABOUT, About
from fedcohort.runs.experiment import config_hash, difference
from fedcohort.runs.longer import begins
from fedcohort.runs.own_models import write_models
from fedcohort.runs.run import Callback
from fedcohort.runs.stored import (
    AGAIN,
    CONFIG,
    ENVIRONMENT,
    PREPARATION,
    RESULT,
    ROSTER,
    TABLE,
    parse_table,
    read_environment,
    read_result,
    read_table,
)
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError
from fedcohort.util.files import LARGE, damaged, fields, read_bytes, read_toml, refuse_links
from fedcohort.util.settings import at_least
from fedcohort.util.user_code import in_words

__all__ = ["CONFIG", "ENVIRONMENT", "ROSTER", "Recorder", "read_result", "read_table"]

CLIENTS = "clients"  # a folder for what clients remember, if it is too much for the checkpoint
CHECKPOINT_EVERY = 10  # rounds
DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
PACKAGES = ("fedcohort", "torch", "numpy", "scipy", "scikit-learn")  # whose versions matter to a result
FACTS = {"config": dict, "fingerprint": str, "table_bytes": Annotated[int, at_least(0)]}  # of a checkpoint


def new_directory(parent: Path, name: str) -> Path:
    """``parent/name-001``, or the next free number; made now, so that no two runs share it."""
    name = as_file_name(name)
    with out_mistakes(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 1_000_000):
            path = parent / f"{name}-{number:03d}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return path
    raise UserError(f"{parent} is full of runs called {name}: choose another --out")


@contextmanager
def out_mistakes(out: Path) -> Iterator[None]:
    """A place where no directory of runs can be made is told in a sentence."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write results to {out}: {error.strerror}; choose another --out") from None


def run_name(table: dict[str, Any]) -> str:
    """``<method or its label>-<config hash>-s<seed>``, safe as a directory name."""
    asked = table["method"][0]
    method = as_file_name(re.sub(r"\(.*?\)", "", asked.get("label", asked["name"])))
    return f"{method[:80]}-{config_hash(table)}-s{table['seeds'][0]}"


def as_file_name(name: str) -> str:
    """Without what would lead to another folder, and no longer than a disk takes."""
    return re.sub(r"[^\w+.-]+", "_", name)[:100]


class Recorder(Callback):
    """Keeps a run directory."""

    def __init__(
        self,
        directory: Path,
        table: dict[str, Any],
        fingerprint: str,
        every: int = CHECKPOINT_EVERY,
        reopen: Reopen | None = None,
        read: str = "",
        about: About | None = None,
        revealed: Revealed | None = None,
        preparation: Preparation | None = None,
        pause: float = 0.0,
    ) -> None:
        """After a checkpoint the next waits for ``pause`` times what it took. ``reopen`` finds clients'
        memories if they are not in the directory; ``read`` says how the data were read; ``about``,
        ``revealed`` and ``preparation`` are for those who look at the directory later."""
        self.directory, self.config, self.fingerprint, self.every = directory, table, fingerprint, every
        self.read, self.about = read, about
        self.private = {ROSTER: revealed, PREPARATION: preparation}  # for the owner of the directory alone
        self.reopen, self.pause = reopen, pause
        self.saved = -1  # round of the last checkpoint
        self.next_save = 0.0  # not before this time, but at the end
        self.in_use: deque[list[Clients]] = deque(maxlen=2)  # by the two checkpoints: not to be removed
        self.digest = hashlib.sha256()  # of the table
        # The last round whose rows are all in the table, and the table's length and digest then: assigned
        # together, because Ctrl-C may come between any two statements.
        self.complete: tuple[State, int, str] | None = None

    def open(self) -> tuple[State, list[Row]] | None:
        """Where to go on from: the last checkpoint and the rows before it, or None for the start."""
        refuse_links(self.directory)
        check_config(self.directory, self.config, longer=not (self.directory / RESULT).exists())
        if checkpoint.exists(self.directory):
            return self._resume()
        self._start()
        return None

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)  # it is there if a run was killed very early
        self.describe()
        self._open("wb")
        self._write([Row._fields])

    def _resume(self) -> tuple[State, list[Row]]:
        """Rows after the checkpoint are cut off: they will come again."""
        tensors, facts = load_checkpoint(self.directory)
        if self.fingerprint != facts["fingerprint"]:
            raise UserError(
                f"{self.directory}: the data changed since the run was started, or an older fedcohort scaled "
                "them in another way: restore them, or start a new run"
            )
        method = Method.parse(self.config["method"][0]["name"])
        state = read_state(self.directory, tensors, method, self.reopen)
        size, path = facts["table_bytes"], self.directory / TABLE
        table = read_bytes(path, LARGE, AGAIN)[:size]
        if len(table) < size:
            raise UserError(f"{path} is shorter than its checkpoint says: start the run again")
        rows = parse_table(table, path)
        self.digest = hashlib.sha256(table)
        if facts.get("table_digest", self.digest.hexdigest()) != self.digest.hexdigest():
            raise damaged(path, "its rows are not those that the checkpoint was saved with", AGAIN)
        self.describe(only_missing=True)
        os.truncate(path, size)
        self.saved = state.round if facts["config"] == self.config else -1  # more rounds were asked since
        self.complete = state, size, self.digest.hexdigest()
        self.in_use.append(_memories(state))
        self._open("ab")
        return state, rows

    @contextmanager
    def doubting(self, restored: tuple[State, list[Row]] | None) -> Iterator[None]:
        """The numbers of a checkpoint may be anybody's: if not even one round can be made from them, that is
        what is said."""
        try:
            yield
        except (UserError, OSError):
            raise
        except Exception as error:
            if restored is None or self.complete is None or self.complete[0].round > restored[0].round:
                raise
            why = f"round {restored[0].round + 1} cannot be made from it: {in_words(error)}"
            raise damaged(self.directory / checkpoint.CURRENT, why, AGAIN) from error

    def describe(self, only_missing: bool = False) -> None:
        """Writes down what is run, and on what."""
        facts = {**environment(), "fingerprint": self.fingerprint, "read": self.read}
        texts = {CONFIG: tomli_w.dumps(self.config), ENVIRONMENT: json.dumps(facts, indent=2) + "\n"}
        if self.about is not None:
            texts[ABOUT] = self.about.text()
        for name, text in texts.items():
            if not (only_missing and (self.directory / name).exists()):
                checkpoint.write_atomically(self.directory / name, text.encode())
        for name, kept in self.private.items():
            if kept is not None and not (only_missing and (self.directory / name).exists()):
                kept.write(self.directory / name)
        self._environment()  # before anything is trained: the end of the run needs it

    def _environment(self) -> dict[str, Any]:
        return read_environment(self.directory, "delete it, and it is written again when the run goes on")

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        self._write(rows)
        self.complete = state, self.file.tell(), self.digest.hexdigest()
        if state.round % self.every == 0 and time.monotonic() >= self.next_save:
            self._save()
        return False

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        """The checkpoint knows nothing of these rows: a run that goes on for more rounds has none of them."""
        self._save()
        self._write(rows)

    def keep(self, models: Sequence[Weights]) -> None:
        write_models(self.directory, models)

    def close(self, state: State) -> None:
        """Keeps the last complete round; ``state`` may be one further, if the run was stopped before its
        rows came."""
        self._save()
        for memories in itertools.chain(*self.in_use):
            if isinstance(memories, Memories):
                memories.stay()
        self.file.close()
        self._add_time()

    def _add_time(self) -> None:
        """Adds the seconds since the directory was opened to those of earlier parts of the run."""
        facts = self._environment()
        seconds = facts["seconds"] + time.monotonic() - self.opened
        text = json.dumps({**facts, "seconds": round(seconds, 2)}, indent=2) + "\n"
        checkpoint.write_atomically(self.directory / ENVIRONMENT, text.encode())

    def _save(self) -> None:
        if self.complete is None or self.complete[0].round == self.saved:
            return
        begun, (state, size, digest) = time.monotonic(), self.complete
        os.fsync(self.file.fileno())  # the checkpoint must not know more than the table
        table = {"table_bytes": size, "table_digest": digest}
        facts = {"config": self.config, "fingerprint": self.fingerprint, **table}
        for memories in _memories(state):
            if isinstance(memories, Memories):
                memories.flush()
        checkpoint.save(self.directory, pack(state), facts)
        self.in_use.append(_memories(state))
        self.saved = state.round
        ended = time.monotonic()
        self.next_save = ended + self.pause * (ended - begun)

    def finish(self, metrics: dict[str, float]) -> None:
        """Marks the run as complete."""
        text = json.dumps(jsonable(metrics), indent=2) + "\n"
        checkpoint.write_atomically(self.directory / RESULT, text.encode())

    def _open(self, mode: str) -> None:
        self.opened = time.monotonic()
        self.file = (self.directory / TABLE).open(mode)

    def _write(self, rows: Sequence[Any]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(rows)
        lines = text.getvalue().encode()
        self.file.write(lines)
        self.file.flush()
        self.digest.update(lines)


def _memories(state: State) -> list[Clients]:
    """What clients remember now, and what they did after the best round."""
    return [state.clients, *([state.best.clients] if state.best is not None else [])]


def check_config(directory: Path, table: dict[str, Any], longer: bool = False) -> None:
    """Refuses a run directory whose settings, as written or as last used, are not these. The checkpoint of
    one that goes on ``longer`` than it was to at first knows of fewer rounds."""
    kept = []
    if (directory / CONFIG).exists():
        kept.append(read_toml(directory / CONFIG))
    if checkpoint.exists(directory):
        used = load_checkpoint(directory)[1]["config"]
        kept += [] if longer and begins(used, table) else [used]
    for theirs in kept:
        if (change := difference(table, theirs)) is not None:
            raise UserError(
                f"{directory} is of another experiment ({change}): undo that change, or start a new run"
            )


def load_checkpoint(directory: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The newest good checkpoint of a run that is to be continued."""
    tensors, facts = checkpoint.load(directory, tidy=True)
    return tensors, {**facts, **fields(facts, FACTS, directory / checkpoint.CURRENT, AGAIN)}


def read_state(
    directory: Path, tensors: dict[str, torch.Tensor], method: Method, reopen: Reopen | None = None
) -> State:
    """The state in a checkpoint; ``reopen`` finds clients' memories that are not in the directory."""
    reopen = reopen or partial(StoredMemories.reopen, directory / CLIENTS)
    try:
        return unpack(renamed(tensors, method), reopen)
    except (LookupError, ValueError, TypeError, RuntimeError, AssertionError) as error:
        raise damaged(directory / checkpoint.CURRENT, f"{error} is wrong", AGAIN) from None


@contextmanager
def disk_mistakes(directory: Path) -> Iterator[None]:
    """A disk that is full, or cannot be written, ends a run with one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise UserError(
            f"cannot write to {directory} ({error.strerror}): make room or let it be written, then continue "
            "with 'fedcohort run --resume'; what was saved is kept"
        ) from None


_version = cache(version)  # which searches the disk for it


def environment() -> dict[str, Any]:
    """Where and with what a run was made."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "command": sys.argv,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def jsonable(metrics: dict[str, float]) -> dict[str, float | None]:
    """JSON has no NaN and no infinity: null stands for both."""
    return {key: value if abs(value) < float("inf") else None for key, value in metrics.items()}
