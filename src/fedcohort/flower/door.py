"""A door that anybody may knock at: so many visits in all, so many from one address, and none for ever.

A visitor has to keep moving: a request must be there soon after the connection, and what follows flow at
some pace, in both directions. Where there is no room, those leave who only wait, strangers first.
"""

import asyncio
import socket
import ssl
import struct
from asyncio import sslproto
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TypeVar

T = TypeVar("T")

CHUNK = 16 * 1024  # bytes that are read at once: as many as TLS puts into one record
MOST = 1000  # visits at a time, where the system allows so many: each costs memory
EACH = 2  # files of a visit: its connection, and one to the SuperLink
RESERVE = 56  # files that are no visits: the program's own, and idle connections to the SuperLink
FAREWELL = 2.0  # seconds for the other side to agree that a connection ends
REPORT = 60.0  # seconds between two words about those who were turned away
AT_ONCE = struct.pack("ii", 1, 0)  # for SO_LINGER: a reset, after which Flower's client tries again

sslproto.SSLProtocol.max_size = CHUNK  # of a buffer that every connection has; asyncio's choice is 256 KiB


@dataclass(frozen=True)
class Limits:
    """What a visitor may take."""

    per_address: int = 64  # visits at a time; clients behind one router share an address
    total: int = 0  # visits at a time; 0: as many as the limit of open files allows
    head: float = 10.0  # seconds for a handshake, and from there or the last answer to the end of the headers
    patience: float = 30.0  # seconds that a body or an answer may stand still
    rate: float = 8192.0  # bytes in a second, below which patience runs out


class Visit:
    """One connection, with the time that its other side has left."""

    def __init__(self, connection: socket.socket, origin: str, limits: Limits) -> None:
        self.origin, self.limits = origin, limits
        self.known = False  # it has proved once who it is
        self.waits = True  # for a request, so it may be ended without harm
        self.since = asyncio.get_running_loop().time()
        self.leaves = False  # it was told to
        self.host: asyncio.Task[None] | None = None
        self._connection, self._left = connection, limits.head

    async def greet(self, context: ssl.SSLContext) -> None:
        """The handshake."""
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(CHUNK)
        protocol = asyncio.StreamReaderProtocol(self._reader)
        handshake = loop.connect_accepted_socket(
            lambda: protocol, self._connection, ssl=context, ssl_shutdown_timeout=FAREWELL
        )
        transport, _ = await self._in_time(handshake)
        self._writer = asyncio.StreamWriter(transport, protocol, self._reader, loop)

    def wait(self) -> None:
        """For a request: it has so many seconds until its headers are there, however many bytes they have."""
        self.waits, self.since, self._left = True, asyncio.get_running_loop().time(), self.limits.head

    def begin(self) -> None:
        """The request of somebody known is there: what follows may take as long as it keeps moving."""
        self.known, self.waits, self._left = True, False, self.limits.patience

    async def read(self) -> bytes:
        """The next bytes, none at the end."""
        data = await self._in_time(self._reader.read(CHUNK))
        self._moved(len(data))
        return data

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._in_time(self._writer.drain())
        self._moved(len(data))

    async def end(self) -> None:
        """Politely: what was written arrives."""
        self._writer.close()
        await self._in_time(self._writer.wait_closed())

    def leave(self) -> None:
        """Ends as soon as others have had their turn."""
        self.leaves = True
        if self.host is not None:
            self.host.cancel()

    def drop(self) -> None:
        """At once."""
        if hasattr(self, "_writer"):
            self._writer.transport.abort()
        self._connection.close()

    async def _in_time(self, step: Awaitable[T]) -> T:
        """Only the time that the other side takes counts."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(max(self._left, 0)):
                return await step
        finally:
            self._left -= loop.time() - began

    def _moved(self, count: int) -> None:
        if not self.waits:
            self._left = min(self.limits.patience, self._left + count / self.limits.rate)


class Door:
    """Accepts connections and hands those that may stay to ``receive``."""

    def __init__(
        self,
        limits: Limits,
        context: ssl.SSLContext,
        receive: Callable[[Visit], Awaitable[None]],
        say: Callable[[str], None],
    ) -> None:
        self.limits, self.context, self.receive, self.say = limits, context, receive, say
        self.total = limits.total or min(MOST, (open_files() - RESERVE) // EACH)
        self.visits: set[Visit] = set()
        self.turned_away: Counter[str] = Counter()

    async def stay_open(self, host: str, port: int) -> None:
        """At every address that the host's name stands for, until cancelled."""
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        listeners = [
            socket.create_server(at[:2], family=family, backlog=512, dualstack_ipv6=at[0] == "::")
            for family, *_, at in places
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report())
            for listener in listeners:
                listener.setblocking(False)
                group.create_task(self._accept(listener))

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError:  # it left before we looked, or others took all files
                await asyncio.sleep(0.1)
                continue
            visit = Visit(connection, origin(address[0]), self.limits)
            if self._make_room(visit):
                visit.host = loop.create_task(self._host(visit))
                visit.host.add_done_callback(partial(self._gone, visit))
                self.visits.add(visit)
            else:
                with suppress(OSError):
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                connection.close()
            await asyncio.sleep(0)  # others have their turn, however many knock

    def _make_room(self, visit: Visit) -> bool:
        """Ends visits of those who only wait, strangers first; false if everybody is busy."""
        staying = [there for there in self.visits if not there.leaves]
        beside = [there for there in staying if there.origin == visit.origin]
        for there, most, where in (
            (beside, self.limits.per_address, visit.origin),
            (staying, self.total, "all addresses"),
        ):
            if len(there) < most:
                continue
            self.turned_away[f"more than {most} from {where}"] += 1
            idle = [other for other in there if other.waits]
            if not idle:
                return False
            leaves = min(idle, key=lambda other: (other.known, other.since))
            leaves.leave()
            staying.remove(leaves)
        return True

    async def _host(self, visit: Visit) -> None:
        try:
            await visit.greet(self.context)
            await self.receive(visit)
        except TimeoutError:
            if not (visit.known and visit.waits):  # a client that has nothing more to say may go
                self.turned_away["too slow"] += 1
        except OSError:  # it left
            pass

    def _gone(self, visit: Visit, host: asyncio.Task[None]) -> None:
        visit.drop()
        self.visits.discard(visit)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT)
            if self.turned_away:
                told = ", ".join(f"{why} ({count})" for why, count in self.turned_away.most_common(5))
                self.say(f"connections ended: {told}")
                self.turned_away.clear()


def origin(address: str) -> str:
    """What counts as one address: in IPv6 a whole network, for it costs nothing to have many in it."""
    ip = ip_address(address.partition("%")[0])
    if not isinstance(ip, IPv6Address):
        return address
    return str(ip.ipv4_mapped or ip_network((ip, 64), strict=False))


def open_files() -> int:
    """How many this process may have, after raising the limit as far as it is allowed to."""
    wanted = EACH * MOST + RESERVE
    try:
        import resource
    except ImportError:  # Windows, which sets no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        return allowed
    return soft
