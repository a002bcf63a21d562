"""A network of its own for a deployment: loopback and nothing else, where the system permits it.

In such a network nothing can leave, and the kernel counts every attempt. Where the system permits none, a
look at open sockets once a second has to do: it sees a connection that lasts, and may miss a short one.
"""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

HOLD = """
import fcntl, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    fcntl.ioctl(probe, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running
print("ready", flush=True)
sys.stdin.read()
"""
LISTENING = "0A"
# Of the kernel's counters, those that stay 0 while all is on loopback: packets without a way, and any UDP,
# with which names would be looked up at a resolver of this machine.
OUTWARD = {"Ip.OutNoRoutes", "Udp.OutDatagrams", "Ip6OutNoRoutes", "Udp6OutDatagrams"}


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
        rows = (line.split() for line in self._read("tcp", "tcp6").splitlines())
        return {int(row[1].split(":")[1], 16) for row in rows if row[3] == LISTENING}

    def attempts(self) -> int:
        """How often somebody tried to reach another machine; 0 where this is not counted."""
        if self.holder is None:
            return 0
        lines = [line.split() for line in self._read("snmp").splitlines()]
        counts = {line[0]: int(line[1]) for line in map(str.split, self._read("snmp6").splitlines())}
        for names, values in zip(lines[::2], lines[1::2], strict=True):
            group = names[0].removesuffix(":")
            counts |= {f"{group}.{name}": int(v) for name, v in zip(names[1:], values[1:], strict=True)}
        return sum(counts.get(name, 0) for name in OUTWARD)

    def _read(self, *names: str) -> str:
        """What this network's /proc/net has under these names; it has no file for IPv6 where that is off."""
        command = self.command(["cat", *(f"/proc/net/{name}" for name in names)])
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout


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
    """Other machines' addresses to which one of these processes has a socket."""
    links = (link for process in processes for link in _links(Path(f"/proc/{process}/fd")))
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links}
    tables = (Path("/proc/net") / name for name in ("tcp", "tcp6", "udp", "udp6"))
    return set().union(*(foreign(table.read_text(), sockets) for table in tables if table.exists()))


def foreign(table: str, sockets: set[str]) -> set[str]:
    """The same of one of the kernel's tables of sockets."""
    found = set[str]()
    for row in map(str.split, table.splitlines()[1:]):
        address = _address(row[2].split(":")[0])
        if row[9] in sockets and not (address.is_loopback or address.is_unspecified):
            found.add(str(address))
    return found


def _address(text: str) -> IPv4Address | IPv6Address:
    """The kernel writes an address as words whose bytes are reversed."""
    raw = bytes.fromhex(text)
    address = ip_address(b"".join(raw[start : start + 4][::-1] for start in range(0, len(raw), 4)))
    return getattr(address, "ipv4_mapped", None) or address


def _links(folder: Path) -> list[str]:
    """What the entries of a folder point to, but for those that go while we look."""
    found = list[str]()
    with contextlib.suppress(OSError):
        for link in list(folder.iterdir()):
            with contextlib.suppress(OSError):
                found.append(str(link.readlink()))
    return found
