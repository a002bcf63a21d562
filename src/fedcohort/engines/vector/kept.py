"""Machine code of earlier processes, so that LLVM compiles a network once on a machine.

What is kept here will be executed. So it is read only where nobody but its user can have written it: a folder
and a file of that user, which others may not write to, whole to the last byte.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from fedcohort.util.files import cache_folder

MOST = 64  # programs; the oldest make room
NOT_THERE = OSError, RuntimeError  # the latter: nobody's home
DIGEST = hashlib.sha256().digest_size


class Kept:
    """The machine code of one program: ``key`` is all that it depends on."""

    def __init__(self, key: str) -> None:
        self.name = f"{hashlib.sha256(key.encode()).hexdigest()}.o"

    @property
    def path(self) -> Path:
        return cache_folder() / "kernels" / self.name

    def read(self) -> bytes | None:
        """None if there is none that can be trusted."""
        with suppress(*NOT_THERE), self.path.open("rb") as file:
            if _is_ours(self.path.parent.stat()) and _is_ours(os.fstat(file.fileno())):
                digest, code = file.read(DIGEST), file.read()
                return code if hashlib.sha256(code).digest() == digest else None
        return None

    def write(self, code: bytes) -> None:
        """At once or not at all: where it cannot be written, it is compiled again the next time."""
        with suppress(*NOT_THERE):
            folder, begun = self.path.parent, self.path.with_suffix(f".{os.getpid()}")
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            begun.write_bytes(hashlib.sha256(code).digest() + code)
            begun.replace(self.path)
            for old in sorted(folder.glob("*.o"), key=lambda path: path.stat().st_mtime)[:-MOST]:
                old.unlink()


def _is_ours(about: os.stat_result) -> bool:
    """Where there are no users with numbers, as in Windows, nothing is known to be."""
    return hasattr(os, "getuid") and about.st_uid == os.getuid() and not about.st_mode & 0o022
