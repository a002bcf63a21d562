"""One process at a time keeps a directory of runs, and others can tell that it is at work.

The lock belongs to the process, not to a file's content: it is gone when the process ends, however it ends.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedcohort.util.errors import UserError

try:
    import fcntl
except ImportError:  # Windows: nobody is refused, and nobody seems to be at work
    fcntl = None  # type: ignore[assignment]

PATIENCE = 0.5  # seconds: whoever only looks holds the lock for an instant too


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Holds ``directory`` for as long as the block lasts; a UserError if another process does."""
    descriptor = os.open(directory, os.O_RDONLY) if fcntl else -1
    try:
        deadline = time.monotonic() + PATIENCE
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise UserError(
                    f"{directory} is being run by another process: wait for it with 'fedcohort watch'"
                )
            time.sleep(0.02)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def is_held(directory: Path) -> bool:
    """Whether a process is at work in ``directory``."""
    if not fcntl or not directory.is_dir():
        return False
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        return not _taken(descriptor)
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Whether the lock could be had; a file system without locks gives it to everybody."""
    if not fcntl:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
