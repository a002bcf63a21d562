"""What clients remember, when all of it would not fit in memory: one file for each, read when it trains.

SCAFFOLD and FedDyn keep a vector as long as the model at every client; ten thousand clients of a million
parameters make 40 GB. A store stands in a State where a dict of client memories stands otherwise, and is a
value like it: ``updated`` gives another store that shares whatever did not change. A file that was replaced
by a newer one is removed as soon as no store refers to it; the rest, for checkpoints, outlive the process.
"""

import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import torch

from fedcohort.core.records import Clients, Memory, Shapes, shapes_of
from fedcohort.util.checkpoint import flush
from fedcohort.util.errors import UserError

Reopen = Callable[[dict[int, int]], Clients]  # finds memories again by their versions
IN_MEMORY = 1 << 30  # bytes of all clients together up to which they stay in memory


class Entry:
    """One client's file, as written in one round. Shelves that hold the same file share its entry."""

    known: ClassVar[weakref.WeakValueDictionary[Path, "Entry"]] = weakref.WeakValueDictionary()

    def __init__(self, path: Path, version: int) -> None:
        self.path, self.version, self.flushed = path, version, False
        self.end: weakref.finalize[[Path], Entry] | None = None  # once there is a newer one

    @classmethod
    def of(cls, path: Path, version: int) -> "Entry":
        return cls.known.setdefault(path, cls(path, version))

    def replace(self) -> None:
        """There is a newer one: the file goes when nobody refers to it any more, but not at exit."""
        if self.end is None:
            self.end = weakref.finalize(self, _remove, self.path)
            self.end.atexit = False

    def stay(self) -> None:
        """The file stays, although nobody here will refer to it any more: a checkpoint does."""
        if self.end is not None:
            self.end.detach()
            self.end = None


class Memories(Mapping[int, Memory], ABC):
    """Client memories that are not in this process's memory, each known by the round it was written in."""

    @property
    @abstractmethod
    def versions(self) -> dict[int, int]:
        """The round in which each client's memory was written."""

    @abstractmethod
    def updated(self, mine: Mapping[int, Memory], version: int) -> "Memories":
        """These memories with what some clients remember now."""

    @abstractmethod
    def emptied(self) -> Clients:
        """Where memories of another kind begin."""

    def flush(self) -> None:
        """Makes sure that all are on the disk; a checkpoint that refers to them may follow."""

    def stay(self) -> None:
        """Whoever comes after this run may read them by its checkpoint."""


class StoredMemories(Memories):
    """Client memories in a folder; without one, in a folder that goes with the process."""

    def __init__(self, folder: Path | None) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="fedcohort-") if folder is None else None
        self.folder = folder or Path(self._temporary.name)  # type: ignore[union-attr]
        self._entries: dict[int, Entry] = {}

    @classmethod
    def reopen(cls, folder: Path, versions: Mapping[int, int]) -> "StoredMemories":
        """The store of a checkpoint."""
        store = cls(folder)
        for client, version in versions.items():
            entry = Entry.of(store._path(client, version), version)
            if not entry.path.is_file():
                raise UserError(
                    f"{entry.path}, which the checkpoint needs, is missing: restore it or start again"
                )
            store._entries[client] = entry
        return store

    def __getitem__(self, client: int) -> Memory:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self._entries[client].path
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise _damaged(path, error) from None

    def shapes(self, client: int) -> Shapes:
        """What a memory looks like; its numbers stay on the disk."""
        from safetensors import SafetensorError, safe_open

        path = self._entries[client].path
        try:
            with safe_open(path, framework="pt") as file:
                parts = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
                kinds = {key: part[:0] if part.get_shape() else part[...] for key, part in parts.items()}
                return {key: (tuple(part.get_shape()), kinds[key].dtype) for key, part in parts.items()}
        except (SafetensorError, OSError, ValueError) as error:
            raise _damaged(path, error) from None

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def versions(self) -> dict[int, int]:
        return {client: entry.version for client, entry in self._entries.items()}

    def updated(self, mine: Mapping[int, Memory], version: int) -> "StoredMemories":
        other = StoredMemories.__new__(StoredMemories)
        other._temporary, other.folder = self._temporary, self.folder
        other._entries = dict(self._entries)
        for client, memory in mine.items():
            other._entries[client] = self._write(client, memory, version)
            if client in self._entries:
                self._entries[client].replace()
        return other

    def flush(self) -> None:
        for entry in self._entries.values():
            if not entry.flushed:
                flush(entry.path)
                entry.flushed = True

    def stay(self) -> None:
        for entry in self._entries.values():
            entry.stay()

    def replaced_by(self, newer: Clients) -> None:
        """What is not in the newer store goes when nobody refers to it any more."""
        known = newer._entries if isinstance(newer, StoredMemories) else {}
        for client, entry in self._entries.items():
            if known.get(client) is not entry:
                entry.replace()

    def emptied(self) -> Clients:
        return {}  # merged models are small

    def _path(self, client: int, version: int) -> Path:
        return self.folder / f"{client}-{version}.safetensors"

    def _write(self, client: int, memory: Memory, version: int) -> Entry:
        from safetensors.torch import save_file

        path = self._path(client, version)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = path.with_suffix(".tmp")  # an older process's file of this name may be in use
            save_file({key: value.contiguous() for key, value in memory.items()}, aside)
            aside.replace(path)
        except Exception as error:  # safetensors has its own kinds for a full disk
            raise UserError(f"cannot write what clients remember to {self.folder}: {error}") from None
        return Entry.of(path, version)


def empty(client: Memory, clients: int, folder: Path | None) -> Clients:
    """Where memories like ``client`` of this many clients are kept."""
    size = sum(value.numel() * value.element_size() for value in client.values())
    return StoredMemories(folder) if size * clients > IN_MEMORY else {}


def updated(clients: Clients, mine: Mapping[int, Memory], version: int) -> Clients:
    return clients.updated(mine, version) if isinstance(clients, Memories) else {**clients, **mine}


def emptied(clients: Clients) -> Clients:
    return clients.emptied() if isinstance(clients, Memories) else {}


def versions(clients: Clients) -> dict[int, int]:
    """The round in which each client's memory was written, where somebody else keeps it."""
    return clients.versions if isinstance(clients, Memories) else {}


def all_shapes(clients: Clients) -> Iterator[Shapes]:
    """What each client's memory looks like, of those that are on this machine."""
    if isinstance(clients, StoredMemories):
        yield from map(clients.shapes, clients)
    elif not isinstance(clients, Memories):
        yield from map(shapes_of, clients.values())


def pack(clients: Clients) -> Memory:
    """As named tensors; of memories elsewhere only what finds them again."""
    ids = sorted(clients)
    out = {"clients": torch.tensor(ids, dtype=torch.long)}
    if isinstance(clients, Memories):
        versions = clients.versions
        out["shelf"] = torch.tensor([versions[client] for client in ids], dtype=torch.long)
        return out
    for key in clients[ids[0]] if ids else ():
        out[f"clients/{key}"] = torch.stack([clients[client][key] for client in ids])
    return out


def unpack(tensors: Memory, reopen: Reopen | None) -> Clients:
    """The inverse of :func:`pack`."""
    ids = tensors["clients"].tolist()
    if "shelf" in tensors:
        if reopen is None:
            raise UserError("the memories of this run are at its clients: resume it where it was begun")
        return reopen(dict(zip(ids, tensors["shelf"].tolist(), strict=True)))
    rows = {
        key.removeprefix("clients/"): value for key, value in tensors.items() if key.startswith("clients/")
    }
    return {client: {key: values[row] for key, values in rows.items()} for row, client in enumerate(ids)}


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is damaged ({error}): restore it or start again")


def _remove(path: Path) -> None:
    with suppress(OSError):  # gone already, or open on a system that minds
        path.unlink()
