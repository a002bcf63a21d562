"""Who may take part: the public keys in a folder. One that appears is admitted, one that is gone is shut out.

Flower's database knows nodes by numbers and forgets no key, so what was admitted under which number is kept
beside it. A key that was shut out can never be admitted again: its client makes a new one.
"""

import json
import math
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedcohort.flower.processes import program

SHUT_OUT = 0  # the number of a key that is admitted no more
UNKNOWN = -1  # of one that the database knew before this record was begun
RETRY = 60.0  # seconds until what failed is tried again: the SuperLink may have been away


class Admission:
    """Keeps Flower's database like the folder."""

    def __init__(self, folder: Path, record: Path, connection: str, env: Mapping[str, str]) -> None:
        self.folder, self.record, self.connection, self.env = folder, record, connection, env
        self.names: dict[str, str] = {}  # by public key
        self.numbers: dict[str, int] = {}  # of nodes, by public key
        self.dealt_with: dict[str, bool] = {}  # whether the key was there then
        self.due: dict[str, float] = {}  # when to try again
        if record.exists():
            for line in json.loads(record.read_text(encoding="utf-8")):
                self.names[line["key"]], self.numbers[line["key"]] = line["name"], line["node"]

    def look(self, say: Callable[[str], None]) -> None:
        """Admits and shuts out whom the folder's changes since the last look concern."""
        there = self._keys()
        admitted = {key for key, node in self.numbers.items() if node != SHUT_OUT}
        for key in sorted(there.keys() | admitted, key=lambda key: there.get(key) or self.names[key]):
            tried = self.dealt_with.get(key) == (key in there)
            if not tried or time.monotonic() >= self.due.get(key, math.inf):
                self.dealt_with[key] = key in there
                self.due.pop(key, None)
                say(self._admit(key, there[key]) if key in there else self._shut_out(key))

    def _keys(self) -> dict[str, str]:
        """The names of the public keys that are in the folder."""
        found = {}
        for path in self.folder.glob("*.pub"):
            with suppress(OSError):  # it went while we looked
                kind, *key = path.read_text(encoding="utf-8", errors="replace").split() or [""]
                found[" ".join([kind, *key[:1]])] = path.stem  # what follows is a comment
        return found

    def _admit(self, key: str, name: str) -> str:
        known = self.numbers.get(key)
        if known == SHUT_OUT:
            return f"{name} was shut out, and Flower forgets no key: let that client make a new one"
        if known is not None:
            return f"{name} is admitted already"
        answer, words = self._flwr("register", str(self.folder / f"{name}.pub"), "--name", name)
        if answer is None and "already" not in words:
            return self._failed(key, f"could not admit {name}: {words}")
        self._keep(key, name, UNKNOWN if answer is None else int(answer["node-id"]))
        return f"admitted {name}" if answer is not None else f"{name} is admitted already"

    def _shut_out(self, key: str) -> str:
        name, node = self.names[key], self.numbers[key]
        if node == UNKNOWN:
            return f"{name} stays admitted: find its number with 'flwr supernode list', then unregister it"
        answer, words = self._flwr("unregister", str(node))
        if answer is None:
            return self._failed(key, f"could not shut out {name}: {words}")
        self._keep(key, name, SHUT_OUT)
        return f"shut out {name}: its key was removed"

    def _failed(self, key: str, words: str) -> str:
        self.due[key] = time.monotonic() + RETRY
        return words

    def _flwr(self, verb: str, whom: str, *options: str) -> tuple[dict[str, Any] | None, str]:
        """What Flower's own command answers, if it did what it should, and all that it said."""
        command = [program("flwr"), "supernode", verb, whom, self.connection, *options, "--format", "json"]
        done = subprocess.run(  # noqa: S603  # words of a list, of which no shell makes others
            command, env=self.env, capture_output=True, text=True, check=False
        )
        answer = None
        with suppress(ValueError):
            answer = json.loads(done.stdout)
        well = done.returncode == 0 and isinstance(answer, dict) and answer.get("success")
        return (answer if well else None), " ".join((done.stdout + done.stderr).split())

    def _keep(self, key: str, name: str, node: int) -> None:
        """Whole or not at all, whenever the server is killed."""
        self.names[key], self.numbers[key] = name, node
        lines = [{"name": self.names[k], "node": n, "key": k} for k, n in self.numbers.items()]
        aside = self.record.with_suffix(".part")
        aside.write_text(json.dumps(lines, indent=2), encoding="utf-8")
        aside.replace(self.record)
