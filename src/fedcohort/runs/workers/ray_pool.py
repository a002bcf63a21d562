"""Independent runs on all machines of a Ray cluster: a process for each core, which takes one run after the
other. Those that have nothing left to do leave their cores to the others of their machine.

A machine that sees the directory of the comparison, because it is on storage that all share, writes its runs
there. On any other a run has a directory of that machine, and what changes in it is brought back, so that it
can be continued from here at any moment. The runs of a machine that is lost go on elsewhere.
"""

import queue
import secrets
import stat
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedcohort.engines import pool
from fedcohort.engines.cluster import (
    Cluster,
    LostError,
    heard,
    nobody_left,
    placed,
    refuse_other_versions,
    room,
    speak,
)
from fedcohort.engines.host import read_here, versions
from fedcohort.runs.stored import RESULT
from fedcohort.runs.workers.processes import shares
from fedcohort.runs.workers.schedule import Timed
from fedcohort.runs.workers.telling import Listener, Teller, portable
from fedcohort.util.checkpoint import CURRENT, PREVIOUS, write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.files import refuse_links
from fedcohort.util.warnings import warnings_to

if TYPE_CHECKING:
    from fedcohort.data import Dataset
    from fedcohort.runs.comparison import PlannedRun, Watcher
    from fedcohort.runs.outcomes.standings import Outcome

BRING = 10.0  # seconds between two times that a run's files are brought back
PATIENCE = 1.0  # seconds that a runner waits for something to tell
FAREWELL = 60.0  # seconds in which runs that are stopped save their last round
OTHERS = stat.S_IRWXG | stat.S_IRWXO  # who may read a file beside its owner
LAST = (PREVIOUS, CURRENT, RESULT)  # these say what the others hold, so they are written after them


class Brought(NamedTuple):
    """A file of a run; only its owner can read what is ``private``."""

    data: bytes
    private: bool = False


Files = dict[str, Brought]


class Sign(NamedTuple):
    """A file beside the runs: who finds it shares the storage."""

    path: Path
    text: str

    @property
    def is_seen(self) -> bool:
        try:
            return self.path.read_text() == self.text
        except OSError:
            return False


@dataclass
class RayMember:
    """A process on a machine, and what it is doing."""

    node: dict[str, Any]  # as Ray describes it
    cores: int  # of the machine that it uses
    actor: Any
    listener: Listener
    job: "PlannedRun | None" = None


class RayPool:
    """At most ``size`` processes on the machines of a cluster."""

    def __init__(self, cluster: Cluster, size: int, watcher: "Watcher") -> None:
        nodes = cluster.nodes()
        slots = [node for node in nodes for _ in range(int(node["Resources"]["CPU"]))]
        turns = islice(cycle(nodes), len(slots) * len(nodes))  # one on each machine, then a second, ...
        chosen = [node["NodeID"] for node in turns][: min(size, len(slots))]
        self.members: list[RayMember] = []
        for node in nodes:
            many = chosen.count(node["NodeID"])
            for cores in shares(int(node["Resources"]["CPU"]), many) if many else ():
                actor = placed(Runner, node["NodeID"], cores)
                self.members.append(RayMember(node, cores, actor, Listener(watcher)))
        for member in list(self.members):
            try:
                theirs = heard([member.actor.about.remote()])[0]
                refuse_other_versions(member.node["NodeManagerAddress"], theirs)
            except LostError:
                self.members.remove(member)

    @room()
    def carry_out(self, timed: Timed, home: Path, sent: bool) -> None:
        """All runs that wait. Their data are ``sent``, or read by each machine."""
        import ray

        schedule, data = timed.schedule, dict[str, Any]()  # by what was asked: most runs have the same
        with _sign(home) as sign:
            news: dict[Any, RayMember] = {}
            unable: Exception | None = None
            while schedule.waiting or any(member.job for member in self.members):
                for member in self.members:
                    if member.job is None and schedule.waiting:
                        member.job = schedule.next()
                        asked = member.job.experiment
                        if sent and repr(asked.data) not in data:
                            data[repr(asked.data)] = ray.put(asked.dataset)
                        own, files = data.get(repr(asked.data)), _files(member.job.directory, {})
                        there = replace(member.job, directory=member.job.directory.resolve())
                        member.actor.start.remote(there, own, sign, files)
                        news[member.actor.news.remote()] = member
                if not self.members:
                    raise unable or nobody_left()
                schedule.size = len(self.members)
                self._spread()
                for call in ray.wait(list(news))[0]:
                    member = news.pop(call)
                    try:
                        for kind, *about in heard([call])[0]:
                            if kind == "unable":  # not the run's fault: the next would fare no better there
                                unable = about[0]
                                where = member.node["NodeManagerAddress"]
                                warnings.warn(
                                    f"{where} takes no runs: {unable}", RuntimeWarning, stacklevel=1
                                )
                                raise LostError
                            if kind == "failed" and member.job is not None:
                                timed.fail(*member.job.key, about[0])
                            _hear(member, kind, *about)
                    except LostError:
                        self.members.remove(member)
                        if member.job is not None:
                            schedule.again(member.job)
                    else:
                        if member.job is not None:
                            news[member.actor.news.remote()] = member

    def _spread(self) -> None:
        """All cores of each machine to those who have something to do there."""
        at_work: dict[str, list[RayMember]] = {}
        for member in self.members:
            if member.job is not None:
                at_work.setdefault(member.node["NodeID"], []).append(member)
        for members in at_work.values():
            there = int(members[0].node["Resources"]["CPU"])
            for member, cores in zip(members, shares(there, len(members)), strict=True):
                if member.cores != cores:
                    member.cores = cores
                    member.actor.use.remote(cores)

    def __enter__(self) -> "RayPool":
        return self

    def __exit__(self, *about: object) -> None:
        """Who is at work saves its present round and ends."""
        import ray

        at_work = [member for member in self.members if member.job is not None]
        for member in at_work:
            member.actor.stop.remote()
        deadline = time.monotonic() + FAREWELL
        while at_work and time.monotonic() < deadline:
            for member in list(at_work):
                try:
                    told = heard([member.actor.news.remote()])[0]
                except LostError:
                    at_work.remove(member)
                    continue
                for kind, *about_files in told:
                    if kind == "files":
                        _hear(member, kind, *about_files)
                if any(kind in ("free", "failed", "unable") for kind, *_ in told):
                    at_work.remove(member)
        for member in self.members:
            ray.kill(member.actor)


def _hear(member: RayMember, kind: str, *about: Any) -> None:
    job = member.job
    if job is None:
        return
    if kind in ("free", "failed"):
        member.job = None
    elif kind == "files":
        _write(job.directory, about[0])
    elif kind == "end":
        member.listener.end(replace(about[0], directory=job.directory))
    else:
        getattr(member.listener, kind)(*about)


class Runner:
    """In a process of the cluster: carries out a run in a thread of its own, and tells how it goes."""

    def __init__(self, cores: int) -> None:
        speak()
        self.use(cores)
        self.outbox: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self.teller: _Bringer | None = None

    def about(self) -> dict[str, str]:
        return versions()

    def use(self, cores: int) -> None:
        """So many, from the next round on."""
        pool.CORES = cores

    def start(self, job: "PlannedRun", data: "Dataset | None", sign: Sign, files: Files) -> None:
        """``data``: None where they are to be read here."""
        if data is not None:
            job.experiment.bring(data)
        threading.Thread(target=self._run, args=(job, sign, files), daemon=True).start()

    def stop(self) -> None:
        if self.teller is not None:
            self.teller.ended = True

    def news(self) -> list[tuple[Any, ...]]:
        """What there is to tell, perhaps nothing after a while."""
        found = []
        try:
            found.append(self.outbox.get(timeout=PATIENCE))
            while True:
                found.append(self.outbox.get_nowait())
        except queue.Empty:
            return found

    def _run(self, job: "PlannedRun", sign: Sign, files: Files) -> None:
        from fedcohort.runs.comparison import run_job

        with tempfile.TemporaryDirectory(prefix="fedcohort-") as folder:
            shared = sign.is_seen
            own = job.directory if shared else Path(folder) / job.directory.name
            self.teller = teller = _Bringer(self.outbox, None if shared else own)
            try:
                if not shared:
                    _write(own, files)
                read_here(lambda: job.experiment.dataset)
            except Exception as error:
                teller.tell("unable", portable(error))
                return
            try:
                with warnings_to(lambda text: teller.tell("warned", text)):
                    run_job(replace(job, directory=own), teller)
            except Exception as error:
                teller.bring()
                teller.tell("failed", portable(error))
            else:
                teller.bring()
                teller.tell("free")


class _Bringer(Teller):
    """Puts what there is to tell, and the files that changed, where they are fetched."""

    def __init__(self, outbox: "queue.Queue[tuple[Any, ...]]", directory: Path | None) -> None:
        self.outbox, self.directory, self.seen = outbox, directory, dict[str, tuple[int, int]]()
        self.brought = time.monotonic()

    def tell(self, kind: str, *about: Any) -> None:
        self.outbox.put((kind, *about))

    def listen(self) -> None:
        if time.monotonic() - self.brought > BRING:
            self.bring()

    def end(self, outcome: "Outcome") -> None:
        self.bring()
        super().end(outcome)

    def bring(self) -> None:
        if self.directory is not None and (files := _files(self.directory, self.seen)):
            self.tell("files", files)
        self.brought = time.monotonic()


def _files(directory: Path, seen: dict[str, tuple[int, int]]) -> Files:
    """What of a run's files is not as it was ``seen``, which then says how it is."""
    found = {}
    if directory.is_dir():
        refuse_links(directory)
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                name, about = path.relative_to(directory).as_posix(), path.stat()
                if seen.get(name) != (about.st_mtime_ns, about.st_size):
                    seen[name] = about.st_mtime_ns, about.st_size
                    found[name] = Brought(path.read_bytes(), not about.st_mode & OTHERS)
    return found


def _write(directory: Path, files: Files) -> None:
    """Into their places, those that refer to others last."""
    for name in sorted(files, key=lambda name: (LAST.index(name) if name in LAST else -1, name)):
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise UserError(f"a machine of the cluster would write to {path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, files[name].data, private=files[name].private)


@contextmanager
def _sign(home: Path) -> Iterator[Sign]:
    text = secrets.token_hex(16)
    sign = Sign(home.resolve() / f".shared-{text[:8]}", text)
    sign.path.write_text(text)
    try:
        yield sign
    finally:
        sign.path.unlink(missing_ok=True)
