"""Independent runs on all cores: a process for each core, which takes one run after the other.

Threads share one interpreter, and the many small operations of small clients wait for its lock; two processes
are twice as fast there. Each process of the pool is a plain child that talks through a socket: it gets a run,
tells of its rounds, and ends when its parent says so or is no more. Nothing is lost then, because runs keep
checkpoints, and no number depends on who took which run. Members that have nothing left to do leave their
cores to the others.
"""

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

from fedcohort.engines import pool
from fedcohort.runs.workers.telling import Listener, Teller, portable
from fedcohort.util.cpu import stay_nice, usable_cores
from fedcohort.util.errors import UserError
from fedcohort.util.warnings import warnings_to

if TYPE_CHECKING:
    from fedcohort.runs.comparison import PlannedRun
    from fedcohort.runs.workers.schedule import Timed

STOP, CORES = "stop", "cores"  # what a member is told beside its runs
SENDING = threading.Lock()  # a warning may come from any thread


class ProcessPool:
    """``size`` processes that share this machine's cores."""

    def __init__(self, size: int) -> None:
        self.members = [_start(cores) for cores in shares(usable_cores(), size)]

    def carry_out(self, timed: "Timed") -> None:
        """All runs that wait."""
        schedule = timed.schedule
        listeners = {connection: Listener(timed) for connection, _ in self.members}
        at_work = {connection: schedule.next() for connection, _ in self.members[: len(schedule.waiting)]}
        for connection, job in at_work.items():
            _give(connection, job)
        while at_work:
            for ready in wait(list(listeners)):
                connection = cast(Connection, ready)
                kind, *about = _heard(connection)
                if kind not in ("free", "failed", "lost"):
                    getattr(listeners[connection], kind)(*about)
                    continue
                if connection in at_work:  # else it was lost while it was idle
                    job = at_work.pop(connection)
                    if kind != "free":
                        timed.fail(*job.key, about[0])
                if kind == "lost":
                    del listeners[connection]
                    _spread([*at_work])
                elif schedule.waiting:
                    at_work[connection] = schedule.next()
                    _give(connection, at_work[connection])
                else:
                    _spread([*at_work])

    def __enter__(self) -> "ProcessPool":
        return self

    def __exit__(self, *about: object) -> None:
        """Who is at work saves its present round and ends."""
        for connection, _ in self.members:
            with suppress(OSError):
                _send(connection, STOP)
        for connection, process in self.members:
            with suppress(EOFError, OSError):
                while True:  # a member that cannot get rid of its last words would never end
                    connection.recv_bytes()
            connection.close()
            process.wait()


def shares(cores: int, members: int) -> list[int]:
    """How many cores each member gets: all of them, as evenly as can be, and nobody none."""
    return [max(1, (cores + place) // members) for place in reversed(range(members))]


def _spread(at_work: Sequence[Connection]) -> None:
    """All cores to those who still have something to do."""
    for connection, cores in zip(at_work, shares(usable_cores(), max(1, len(at_work))), strict=False):
        with suppress(OSError):  # it is no more: that is found out when it is listened to
            _send(connection, CORES, cores)


def _give(connection: Connection, job: "PlannedRun") -> None:
    with suppress(OSError):  # it is no more: that is found out when it is listened to
        _send(connection, job)


def _heard(connection: Connection) -> tuple[Any, ...]:
    try:
        return _receive(connection)
    except (EOFError, OSError):  # as a machine does where memory is short; the others go on
        return "lost", UserError("its process was killed, as where memory is short")


class Member(Teller):
    """In the child."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def tell(self, kind: str, *about: Any) -> None:
        _send(self.connection, kind, *about)

    def listen(self) -> None:
        while not self.ended and self.connection.poll():
            self.hear()

    def hear(self) -> tuple[Any, ...]:
        """What the parent says next, if it is about a run; the rest is done here."""
        try:
            message = _receive(self.connection)
        except (EOFError, OSError):
            message = (STOP,)  # it is no more
        if message[0] == CORES:
            pool.CORES = message[1]
        self.ended |= message == (STOP,)
        return () if message[0] in (STOP, CORES) else message


def _start(cores: int) -> tuple[Connection, "subprocess.Popen[bytes]"]:
    ours, theirs = socket.socketpair()
    command = [
        sys.executable,
        "-m",
        "fedcohort.runs.workers.processes",
        str(cores),
        str(theirs.fileno()),
        *sys.argv,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # the user's own code
    with theirs:
        process = subprocess.Popen(  # noqa: S603  # this Python, our own words
            command,
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the parent, which then asks us to end
        )
    return Connection(ours.detach()), process


def _send(connection: Connection, *message: Any) -> None:
    """Plain pickle: PyTorch makes Connection.send put tensors into shared memory, which may be short."""
    words = pickle.dumps(message)
    with SENDING:
        connection.send_bytes(words)


def _receive(connection: Connection) -> tuple[Any, ...]:
    return pickle.loads(connection.recv_bytes())  # noqa: S301  # a pipe to our own child


def main() -> None:
    """A member: one run after the other, until told to end or alone."""
    from fedcohort.runs.comparison import run_job

    stay_nice()
    _, cores, socket_, *sys.argv = sys.argv  # what is left is the command of the user, which runs keep
    pool.CORES, connection = int(cores), Connection(int(socket_))
    told = warnings_to(lambda text: _send(connection, "warned", text))
    member = Member(connection)
    with suppress(EOFError, OSError), told:  # the parent is no more
        while not member.ended:
            if not (order := member.hear()):
                continue
            try:
                run_job(order[0], member)
            except Exception as error:
                _send(connection, "failed", portable(error))
            else:
                _send(connection, "free")


if __name__ == "__main__":
    main()
