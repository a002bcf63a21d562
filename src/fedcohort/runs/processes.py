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
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, cast

from fedcohort.core.evaluate import Row
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.engines import pool
from fedcohort.runs.run import Callback
from fedcohort.util.cpu import usable_cores
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import in_words
from fedcohort.util.warnings import told_by

if TYPE_CHECKING:
    from fedcohort.runs.comparison import Watcher
    from fedcohort.runs.schedule import Schedule
    from fedcohort.runs.standings import Outcome

STOP, CORES = "stop", "cores"  # what a member is told beside its runs
SENDING = threading.Lock()  # a warning may come from any thread


class ProcessPool:
    """``size`` processes that share this machine's cores."""

    def __init__(self, size: int) -> None:
        self.members = [_start(cores) for cores in shares(usable_cores(), size)]

    def carry_out(self, schedule: "Schedule", watcher: "Watcher") -> None:
        """All runs that wait; the first that fails ends the others too."""
        listeners = {connection: _Listener(watcher) for connection, _ in self.members}
        at_work = [connection for connection, _ in self.members][: len(schedule.waiting)]
        for connection in at_work:
            _send(connection, schedule.next())
        while at_work:
            for ready in wait(list(listeners)):
                connection = cast(Connection, ready)
                kind, *about = _heard(connection)
                if kind == "failed":
                    raise about[0]
                if kind != "free":
                    getattr(listeners[connection], kind)(*about)
                elif schedule.waiting:
                    _send(connection, schedule.next())
                else:
                    at_work.remove(connection)
                    _spread(at_work)

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


def _heard(connection: Connection) -> tuple[Any, ...]:
    try:
        return _receive(connection)
    except (EOFError, OSError):
        raise UserError("a process of this comparison was killed; 'fedcohort run --resume' goes on") from None


class _Listener:
    """In the parent: tells the watcher what one member tells."""

    def __init__(self, watcher: "Watcher") -> None:
        self.watcher = watcher

    def begin(self, *about: Any) -> None:
        self.progress: Callback = self.watcher.begin(*about)

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> None:
        self.progress.after_round(state, report, rows)

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        self.progress.conclude(state, rows)

    def close(self, state: State) -> None:
        self.progress.close(state)

    def end(self, outcome: "Outcome") -> None:
        self.watcher.end(outcome)

    def warned(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


class _Teller(Callback):
    """In the child: a watcher, and the callback of its run, that tells the parent."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ended = False  # the parent said so, or is no more

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        _send(self.connection, "begin", method, seed, rounds)
        return self

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        """Ends the run if the parent says so, or is no more."""
        _send(self.connection, "after_round", _light(state), report, list(rows))
        while not self.ended and self.connection.poll():
            self.hear()
        return self.ended

    def hear(self) -> tuple[Any, ...]:
        """What the parent says next, if it is about a run; the rest is done here."""
        try:
            message = _receive(self.connection)
        except (EOFError, OSError):
            message = (STOP,)
        if message[0] == CORES:
            pool.CORES = message[1]
        self.ended |= message == (STOP,)
        return () if message[0] in (STOP, CORES) else message

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        _send(self.connection, "conclude", _light(state), list(rows))

    def close(self, state: State) -> None:
        _send(self.connection, "close", _light(state))

    def expect(self, seconds: float) -> None:
        pass  # nobody here knows of the others

    def end(self, outcome: "Outcome") -> None:
        _send(self.connection, "end", outcome)

    def stop(self) -> None:
        pass


def _light(state: State) -> State:
    """The state without its models and memories, which are large and of no use to a watcher."""
    return replace(state, groups=(), grouping={}, clients={}, encoders=())


def _start(cores: int) -> tuple[Connection, "subprocess.Popen[bytes]"]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "fedcohort.runs.processes", str(cores), str(theirs.fileno()), *sys.argv]
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


def _portable(error: Exception) -> Exception:
    """The error with its traceback in words, for the parent to raise; some classes cannot be pickled."""
    words = "".join(traceback.format_exception(error))
    try:
        error = pickle.loads(pickle.dumps(error))  # noqa: S301  # made on the same line
    except Exception:  # somebody else's class: anything may happen
        error = RuntimeError(in_words(error))
    error.add_note(words)
    return error


def main() -> None:
    """A member: one run after the other, until told to end or alone."""
    from fedcohort.runs.comparison import run_job

    _, cores, socket_, *sys.argv = sys.argv  # what is left is the command of the user, which runs keep
    pool.CORES, connection = int(cores), Connection(int(socket_))
    told = told_by(lambda text: _send(connection, "warned", text))
    teller = _Teller(connection)
    with suppress(EOFError, OSError), told:  # the parent is no more
        while not teller.ended:
            if not (order := teller.hear()):
                continue
            try:
                run_job(order[0], teller)
            except Exception as error:
                _send(connection, "failed", _portable(error))
            else:
                _send(connection, "free")


if __name__ == "__main__":
    main()
