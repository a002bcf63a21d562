"""What no input may do, watched while a case runs: run code, write elsewhere, take too long or too much."""

import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from fedcohort.util import memory_limit

CANARY = "fuzz_canary"  # a module that hostile input names; importing it is running code
MEMORY = 2 * 10**9  # bytes a case may take
RUNS_CODE = (
    "os.exec", "os.fork", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen",
    "socket.connect", "socket.getaddrinfo", "webbrowser.open",
)  # fmt: skip
WRITES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.link", "shutil.rmtree")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Forbidden(BaseException):
    """An input had code run, or a file written where it has no business; no handler may swallow it."""


class Hang(BaseException):
    """A case took longer than it may."""


class Guard:
    """Python's audit events, judged while a case runs; the hook cannot be removed, so it is set once."""

    home: ClassVar[Path | None] = None  # where the case may write; None: no case is running
    seen: ClassVar[Forbidden | None] = None
    installed: ClassVar[bool] = False

    @classmethod
    def install(cls) -> None:
        if not cls.installed:
            cls.installed = True
            sys.addaudithook(cls._judge)
            signal.signal(signal.SIGPROF, cls._too_long)

    @classmethod
    def _judge(cls, event: str, args: tuple[Any, ...]) -> None:
        if cls.home is None or event not in WATCHED:
            return
        wrong = None
        if event in RUNS_CODE or (event == "import" and str(args[0]).startswith(CANARY)):
            wrong = f"runs code: {event} {args!r:.200}"
        elif event == "open" and isinstance(args[0], str | bytes | os.PathLike):
            flags = args[2] if isinstance(args[2], int) else 0
            wrong = cls._outside(args[0]) if flags & WRITING else None
        elif event in WRITES:
            wrong = cls._outside(args[1] if event in ("os.rename", "os.link", "os.symlink") else args[0])
        if wrong:
            cls.seen = Forbidden(wrong)
            raise cls.seen

    @classmethod
    def _outside(cls, path: Any) -> str | None:
        if isinstance(path, int) or str(path) == os.devnull:
            return None
        home, cls.home = cls.home, None  # resolving a path must not be judged itself
        try:
            place = Path(os.fsdecode(path)).resolve()
            return None if place.is_relative_to(home) else f"writes outside its directory: {place}"
        finally:
            cls.home = home

    @staticmethod
    def _too_long(*_: Any) -> None:
        raise Hang("took longer than it may")


WATCHED = frozenset((*RUNS_CODE, *WRITES, "open", "import"))


@contextmanager
def watched(home: Path, seconds: float) -> Iterator[None]:
    """Inside, every forbidden act is an exception, also if somebody swallows the first one."""
    Guard.install()
    bytecode, cache = sys.dont_write_bytecode, os.environ.get("FEDCOHORT_CACHE", "")
    sys.dont_write_bytecode = True  # in a fresh clone a first import would write beside its source
    os.environ["FEDCOHORT_CACHE"] = str(home / "cache")  # and a first network into the user's cache
    Guard.home, Guard.seen = home.resolve(), None
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of work, whoever else is at work here
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        Guard.home = None
        sys.dont_write_bytecode, os.environ["FEDCOHORT_CACHE"] = bytecode, cache
    if Guard.seen is not None:
        raise Guard.seen


def limit_memory() -> None:
    """Of this process: what it has now and MEMORY more; the library takes the machine for that large."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    memory_limit.machine_bytes = lambda: MEMORY
