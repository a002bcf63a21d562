"""Flower's programs as child processes: started quiet, watched line by line, stopped for good.

Quiet means that nothing goes out unasked. Flower by default sends telemetry, looks for updates at every call
and installs an app's dependencies from the package index for every run; all three are off here.
"""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from fedcohort.util.errors import UserError

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
STUCK = "handshake error detected"  # Flower 1.41 stops reconnecting after this line, and stays alive
GRACE = 10.0  # seconds from the polite signal to the other one


def environment(home: Path) -> dict[str, str]:
    """Of a child process: quiet, with Flower's files below ``home``, and its programs on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home.resolve()), "PATH": path}


def program(name: str) -> str:
    """The path of one of Flower's programs in this Python environment."""
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise UserError(f"there is no {name} beside {sys.executable}: pip install 'fedcohort[flower]'")
    return str(path)


class Process:
    """A child whose lines go to ``say``; ``stuck`` tells that it lives but will never work again."""

    def __init__(self, command: Sequence[str], env: dict[str, str], say: Callable[[str], None]) -> None:
        self.stuck = False
        self.last = ""  # its last words, for whoever must explain its end
        self._child = subprocess.Popen(  # noqa: S603  # words of a list, of which no shell makes others
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,  # Ctrl-C is for us alone, and all its children can be ended with it
        )
        self._reader = threading.Thread(target=self._read, args=(say,), daemon=True)
        self._reader.start()

    def _read(self, say: Callable[[str], None]) -> None:
        assert self._child.stdout is not None  # noqa: S101  # a pipe was asked for
        for line in self._child.stdout:
            text = COLOUR.sub("", line).rstrip()
            self.stuck |= STUCK in text
            self.last = text or self.last
            say(text)

    @property
    def alive(self) -> bool:
        return self._child.poll() is None and not self.stuck

    def stop(self) -> None:
        """Politely, so that it may say goodbye to the other side; then by force."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._reader.join()


def free_port() -> int:
    """A port nobody listens on, for a process that only its own children talk to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_health(address: str, ca: Path, process: Process, seconds: float = 60.0) -> None:
    """Returns once the server at ``address`` answers over TLS under our authority's certificate."""
    trust = ssl.create_default_context(cafile=str(ca))
    deadline = time.monotonic() + seconds
    while process.alive and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"https://{address}/health", timeout=5, context=trust).close()
            return
        time.sleep(0.5)
    raise UserError(f"the server at {address} did not start within {seconds:.0f} seconds: {process.last}")
