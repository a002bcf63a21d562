"""A network of its own for a deployment: loopback and nothing else, where the system permits it."""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HOLD = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
print("ready", flush=True)
sys.stdin.read()
"""
LISTENING, ESTABLISHED = "0A", "01"


@dataclass(frozen=True)
class Network:
    """Where commands run: a network namespace held by a process, or (None) the machine's own network."""

    holder: int | None

    def command(self, words: list[str]) -> list[str]:
        if self.holder is None:
            return words
        return ["nsenter", "-t", str(self.holder), "-U", "-n", "--preserve-credentials", "--", *words]

    def listening(self) -> set[int]:
        """The ports on which somebody in this network listens."""
        text = subprocess.run(
            self.command(["cat", "/proc/net/tcp"]), capture_output=True, text=True, check=True
        ).stdout
        rows = (line.split() for line in text.splitlines()[1:])
        return {int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTENING}


@contextlib.contextmanager
def own_network() -> Iterator[Network]:
    """A namespace without any way out. It ends with us, because its holder reads our end of a pipe."""
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        yield Network(None)
        return
    command = ["unshare", "-r", "-n", sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        ready = holder.stdout is not None and holder.stdout.readline() == "ready\n"
        network = Network(holder.pid if ready else None)
        try:
            yield network
        finally:
            holder.communicate("")


def marked(word: str) -> list[int]:
    """The processes in whose environment ``word`` stands: ours, whoever their parents are."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (entry / "environ").read_bytes() and is_running(int(entry.name)):
                found.append(int(entry.name))
    return found


def is_running(process: int) -> bool:
    """False also for one that has ended and whose parent has not noticed."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def running_after(processes: Callable[[], list[int]], seconds: float) -> list[int]:
    """Those that still run when so much time has passed; none as soon as there are none."""
    deadline = time.monotonic() + seconds
    while left := [process for process in processes() if is_running(process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def foreign_peers(processes: list[int]) -> set[str]:
    """Addresses other than loopback to which one of these processes holds a TCP connection."""
    sockets, peers = set[str](), set[str]()
    for process in processes:
        for descriptor in _links(Path(f"/proc/{process}/fd")):
            sockets.add(descriptor.removeprefix("socket:[").removesuffix("]"))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        row = line.split()
        address = row[2].split(":")[0]
        if row[3] == ESTABLISHED and row[9] in sockets and not address.endswith("7F"):
            peers.add(".".join(str(byte) for byte in reversed(bytes.fromhex(address))))
    return peers


def _links(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return [str(link.readlink()) for link in folder.iterdir()]
    return []
