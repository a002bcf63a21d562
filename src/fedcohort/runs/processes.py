"""Independent runs on all cores: a process for each core, which takes one run after the other.

Threads share one interpreter, and the many small operations of small clients wait for its lock; two processes
are twice as fast there. Each process of the pool is a plain child that talks through a socket: it gets a run,
tells of its rounds, and ends when its parent says so or is no more. Nothing is lost then, because runs keep
checkpoints, and no number depends on who took which run.
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
from fedcohort.runs.run import Callback
from fedcohort.util.cpu import usable_cores
from fedcohort.util.errors import UserError
from fedcohort.util.user_code import in_words
from fedcohort.util.warnings import warnings_to

if TYPE_CHECKING:
    from fedcohort.runs.comparison import Job, Watcher
    from fedcohort.runs.experiment import Experiment
    from fedcohort.runs.standings import Outcome

STOP = "stop"
SENDING = threading.Lock()  # a warning may come from any thread


class ProcessPool:
    """``size`` processes that share this machine's cores."""

    def __init__(self, size: int) -> None:
        cores = max(1, usable_cores() // size)
        self.members = [_start(cores) for _ in range(size)]

    def carry_out(self, experiment: "Experiment", jobs: Sequence["Job"], watcher: "Watcher") -> None:
        """All of these runs; the first that fails ends the others too."""
        waiting, at_work = list(jobs), 0
        listeners = {connection: _Listener(watcher) for connection, _ in self.members}
        for connection, _ in self.members[: len(waiting)]:
            _send(connection, experiment, waiting.pop(0))
            at_work += 1
        while at_work:
            for ready in wait(list(listeners)):
                connection = cast(Connection, ready)
                kind, *about = _heard(connection)
                if kind == "failed":
                    raise about[0]
                if kind != "free":
                    getattr(listeners[connection], kind)(*about)
                elif waiting:
                    _send(connection, experiment, waiting.pop(0))
                else:
                    at_work -= 1

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

    def close(self, state: State) -> None:
        self.progress.close(state)

    def end(self, outcome: "Outcome") -> None:
        self.watcher.end(outcome)

    def warned(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=2)


class _Teller:
    """In the child: a watcher, and the callback of its run, that tells the parent."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def begin(self, method: str, seed: int, rounds: int) -> Callback:
        _send(self.connection, "begin", method, seed, rounds)
        return self

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        """Ends the run if the parent has anything to say, or is no more."""
        _send(self.connection, "after_round", _light(state), report, list(rows))
        return self.connection.poll()

    def close(self, state: State) -> None:
        _send(self.connection, "close", _light(state))

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
    from fedcohort.engines import pool
    from fedcohort.runs.comparison import run_job

    _, cores, socket_, *sys.argv = sys.argv  # what is left is the command of the user, which runs keep
    pool.CORES, connection = int(cores), Connection(int(socket_))
    told = warnings_to(lambda text: _send(connection, "warned", text))
    with suppress(EOFError, OSError), told:  # the parent is no more
        while (order := _receive(connection)) != (STOP,):
            try:
                experiment, job = order
                run_job(experiment, job, _Teller(connection))
            except Exception as error:
                _send(connection, "failed", _portable(error))
            else:
                _send(connection, "free")


if __name__ == "__main__":
    main()
