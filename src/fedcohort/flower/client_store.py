"""What a client keeps on its own disk between messages: memories, an update that is not wanted yet, encoders.

Flower starts a new process for every message and forgets its context when a node restarts, so the disk it is.
A memory is known by the round it was written in. The one that training began from stays, and the one that
this one began from: a server that goes back to its last checkpoint repeats the round that it was evaluating,
and clients may have trained for the next one by then. Where a run looks for its best round, the memory of the
best so far stays, too.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcohort.core.records import Memory
from fedcohort.models.flat import Weights
from fedcohort.serving.model import FACTS, ServedModel
from fedcohort.util.checkpoint import flush, write_atomically

RUNS = 16  # whose folders stay
TOKEN = re.compile(r"[0-9a-f]{8,64}")
SERVED = "served"  # the folder of the model that served this client last
NEVER = -1  # the version of a memory that was never written
AGREED = ("method", "seeds", "data", "split", "model", "privacy", "imports")  # settings that a run keeps


class ClientStore:
    """One client's folder for one run."""

    def __init__(self, home: Path, token: str, client: str) -> None:
        if not TOKEN.fullmatch(token):
            raise ValueError("the run's token is not a hexadecimal number")
        name = re.sub(r"[^\w-]+", "_", client)
        self.home = home
        self.folder, self.ledger = home / token / name, home / "told" / name  # of this run, and of all

    def agree(self, run: Mapping[str, Any]) -> bool:
        """Whether the run is what this client was asked to take part in at first; True if this is the first
        time."""
        asked = json.dumps({key: run.get(key) for key in AGREED}, sort_keys=True)
        path, digest = self.folder / "agreed", hashlib.sha256(asked.encode()).hexdigest()
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, digest.encode())
            self._forget_old_runs()
        os.utime(self.folder)
        return path.read_text(encoding="utf-8") == digest

    def _forget_old_runs(self) -> None:
        """Leaves this client's folders of the runs that were used last: a server can begin any number."""
        folders = [
            path for path in self.home.glob(f"*/{self.folder.name}") if TOKEN.fullmatch(path.parent.name)
        ]
        folders = sorted(set(folders) - {self.folder}, key=_last_used, reverse=True)
        for path in folders[RUNS - 1 :]:
            shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):  # other clients may have theirs beside it
                path.parent.rmdir()

    def memory(self, version: int) -> Memory | None:
        """What was remembered after that round; None if it is gone."""
        return self._read(f"memory-{version}")

    def remember(self, memory: Memory, version: int, begun: int, keep: int = NEVER) -> None:
        """Keeps the memory of a round, the one that it began from, the one before that, and the one to
        ``keep``, which served this client best."""
        self._write(f"memory-{version}", memory, {"begun": str(begun)})
        needed = {f"memory-{number}" for number in (version, begun, self._begun(begun), keep)}
        for path in self.folder.glob("memory-*.safetensors"):
            if path.stem not in needed:
                path.unlink(missing_ok=True)

    def _begun(self, version: int) -> int:
        """The memory from which the one of this version was made."""
        from safetensors import safe_open

        path = self._path(f"memory-{version}")
        if not path.exists():
            return NEVER
        with safe_open(path, framework="pt") as file:
            return int((file.metadata() or {}).get("begun", NEVER))

    def hold(self, update: Memory, number: int) -> None:
        """Keeps an update until the server wants it; only that of the last round."""
        for path in self.folder.glob("update-*.safetensors"):
            path.unlink(missing_ok=True)
        self._write(f"update-{number}", update)

    def held(self, number: int) -> Memory | None:
        return self._read(f"update-{number}")

    def store_encoders(self, encoders: Sequence[Weights]) -> None:
        named = {
            f"{n}/{key}": value for n, each in enumerate(encoders) for key, value in each._asdict().items()
        }
        self._write("encoders", named)

    def encoders(self) -> list[Weights] | None:
        stored = self._read("encoders")
        if stored is None:
            return None
        count = len(stored) // 2
        return [Weights(stored[f"{n}/params"], stored[f"{n}/buffers"]) for n in range(count)]

    def keep_served(self, model: ServedModel) -> None:
        """In the place of the one before, for the owner of the data to use."""
        model.save(self.folder / SERVED, private=True)

    def _read(self, name: str) -> Memory | None:
        from safetensors.torch import load_file

        path = self._path(name)
        return load_file(path) if path.exists() else None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.safetensors"

    def _write(self, name: str, memory: Memory, facts: dict[str, str] | None = None) -> None:
        """Whole or not at all, whenever the process is killed."""
        from safetensors.torch import save_file

        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f"{name}.{os.getpid()}.part"
        save_file({key: value.clone() for key, value in memory.items()}, aside, facts)
        flush(aside)
        aside.replace(self._path(name))


def last_served(home: Path) -> Path | None:
    """The folder of the model that served a client last, by what it keeps in its ``--home``."""
    found = home.glob(f"fedcohort/*/*/{SERVED}/{FACTS}")
    return max((path.parent for path in found), key=_last_used, default=None)


def _last_used(folder: Path) -> float:
    """When; long ago if another process of this client has just removed it."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
