"""Which processes there are."""

import os
from contextlib import suppress
from pathlib import Path


def descendants() -> set[int]:
    """Processes that this one has started, and those that they have."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found, layer = set[int](), {os.getpid()}
    while layer := {pid for pid, parent in parents.items() if parent in layer}:
        found |= layer
    return found


def is_alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
