"""Machine code of earlier processes, so that LLVM compiles a network once on a machine.

What is kept here will be executed. So it is kept and read only where nobody but this user and the system can
have put anything: no folder or link on the way may be somebody else's, or open to others.
"""

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from fedcohort.util.errors import UserError
from fedcohort.util.files import cache_folder, read_bytes

MOST = 64  # programs; the oldest make room
NOT_THERE = OSError, RuntimeError, UserError  # RuntimeError: nobody's home
DIGEST = hashlib.sha256().digest_size


class KeptCode:
    """The machine code of one program: ``key`` is all that it depends on."""

    def __init__(self, key: str) -> None:
        self.name = f"{hashlib.sha256(key.encode()).hexdigest()}.kernel"

    @property
    def path(self) -> Path:
        return cache_folder() / "kernels" / self.name

    def read(self) -> bytes | None:
        """None if there is none that can be trusted."""
        with suppress(*NOT_THERE):
            if _only_ours(self.path):
                data = read_bytes(self.path)
                return data[DIGEST:] if hashlib.sha256(data[DIGEST:]).digest() == data[:DIGEST] else None
        return None

    def write(self, code: bytes) -> None:
        """At once or not at all: where it cannot be written, it is compiled again the next time."""
        with suppress(*NOT_THERE):
            folder = self.path.parent
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _only_ours(folder):
                return
            file, begun = tempfile.mkstemp(dir=folder)
            with os.fdopen(file, "wb") as opened:
                opened.write(hashlib.sha256(code).digest() + code)
            Path(begun).replace(self.path)
            for old in sorted(folder.glob("*.kernel"), key=lambda path: path.stat().st_mtime)[:-MOST]:
                old.unlink()


def _only_ours(path: Path) -> bool:
    """Whether nobody else could change what is there: also where links lead, and as far up as folders go.
    Where there are no users with numbers, as in Windows, nothing is known to be."""
    named, real = path.absolute(), path.resolve(strict=True)
    return all(_is_ours(each.lstat()) for way in (named, real) for each in (way, *way.parents))


def _is_ours(about: os.stat_result) -> bool:
    """Or the system's; its folders for all, like /tmp, have a bit that guards what is each user's."""
    closed = stat.S_ISLNK(about.st_mode) or not about.st_mode & 0o022
    guarded = about.st_uid == 0 and about.st_mode & stat.S_ISVTX
    return hasattr(os, "getuid") and about.st_uid in (os.getuid(), 0) and bool(closed or guarded)
