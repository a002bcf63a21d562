"""Checkpoints that survive a power cut: written aside, flushed, renamed, with the previous one kept.

The format is safetensors: named tensors and text, nothing that could run. A digest over all of it is part of
the file, so damage is noticed and the previous checkpoint used instead.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from fedcohort.util.errors import UserError

CURRENT, PREVIOUS = "state.safetensors", "state.previous.safetensors"


class DamagedError(Exception):
    """The file is not what was written."""


def save(directory: Path, tensors: dict[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Writes a checkpoint; at any moment at least one good one is on disk."""
    from safetensors.torch import save as serialise

    text = json.dumps(facts, sort_keys=True)
    # One entry: safetensors writes several in any order, and equal runs must give equal bytes.
    sealed = json.dumps({"digest": _digest(tensors, text), "facts": text})
    write_atomically(directory / CURRENT, serialise(tensors, {"sealed": sealed}), keep=directory / PREVIOUS)


def exists(directory: Path) -> bool:
    """Whether there is a checkpoint, good or damaged."""
    return any((directory / name).exists() for name in (CURRENT, PREVIOUS))


def load(directory: Path, tidy: bool = False) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The newest good checkpoint: its tensors and facts.

    ``tidy`` removes a damaged newer one, or the next save would keep it in the place of the good one.
    """
    found = [path for name in (CURRENT, PREVIOUS) if (path := directory / name).exists()]
    if not found:
        raise UserError(f"{directory} holds no checkpoint to resume from: start the run again")
    damaged: list[Path] = []
    for path in found:
        try:
            good = _read(path)
        except DamagedError:
            damaged.append(path)
            continue
        for other in damaged if tidy else ():
            other.unlink()
        return good
    names = " and ".join(path.name for path in found)
    them = "it" if len(found) == 1 else "both"
    raise UserError(
        f"{directory}: {names} cannot be read (damaged): delete {them} to start from the first round"
    )


def names(directory: Path) -> list[str]:
    """Of which tensors the newest readable checkpoint consists; none of them is read."""
    from safetensors import SafetensorError, safe_open

    for path in (directory / CURRENT, directory / PREVIOUS):
        with suppress(SafetensorError, OSError, ValueError):
            if path.is_file():
                with safe_open(path, framework="pt") as file:
                    return list(file.keys())
    raise UserError(f"{directory} holds no checkpoint that can be read: restore {CURRENT}")


def write_atomically(path: Path, data: bytes, keep: Path | None = None, private: bool = False) -> None:
    """Replaces a file at once or not at all; ``keep`` is where the replaced one goes. Only its owner can read
    what is ``private``."""
    aside = path.with_suffix(path.suffix + ".tmp")
    try:
        with _new_file(aside, private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if keep is not None and path.exists():
            path.replace(keep)
        aside.replace(path)
    except BaseException:  # a full disk gets its room back
        with suppress(OSError):
            aside.unlink()
        raise
    _flush_names(path.parent)


def flush(path: Path) -> None:
    """Makes what others wrote to a file reach the disk. Windows wants it open for writing."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())


def _flush_names(directory: Path) -> None:
    """Makes renames themselves reach the disk. Windows opens no directory, and needs none of this."""
    if os.name == "nt":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _new_file(path: Path, private: bool) -> BinaryIO:
    """Nobody's but ours: a link that somebody left there is not followed."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    return os.fdopen(descriptor, "wb")


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():  # a pipe would let us wait for ever
        raise DamagedError(str(path))
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            meta = file.metadata()
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedError(str(path)) from error
    try:
        sealed = json.loads(meta["sealed"])
        digest, text = sealed["digest"], sealed["facts"]
        good, facts = digest == _digest(tensors, text), json.loads(text)
    except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:  # in the seal itself
        raise DamagedError(str(path)) from error
    if not good or not isinstance(facts, dict):
        raise DamagedError(str(path))
    return tensors, facts


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(tensor.numpy().tobytes())
    return total.hexdigest()
