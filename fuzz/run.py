"""``python -m fuzz.run`` (``make fuzz``): hostile input for every door of the library, on all cores.

Each failure is written to a file with the command that repeats it, and they are listed by place.
"""

import argparse
import ast
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

for threads in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "MKL_NUM_THREADS", "LOKY_MAX_CPU_COUNT"):
    os.environ.setdefault(threads, "1")

from fuzz.guard import MEMORY, limit_memory  # noqa: E402  (after the number of threads is set)
from fuzz.hunt import TARGETS, Catch, Finding, attempt, hunt, target  # noqa: E402

CASES, SECONDS = 100_000, 1200
BATCH = 250  # cases that a worker tries before it reports
PATIENCE = 5  # times a case's limit after which a worker is given up


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if options.repeat:
        return repeat(options.repeat)
    shares = {name: target(name).SHARE for name in TARGETS if options.only in (None, name)}
    wanted = {name: math.ceil(options.cases * share / sum(shares.values())) for name, share in shares.items()}
    home = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        catch, done, took = _Hunt(wanted, options.seed, options.seconds, options.workers, home).carry_out()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return conclude(catch, done, took, wanted, options.out)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES, help="in all (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="at most (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first batch (%(default)s)")
    parser.add_argument("--only", choices=TARGETS, help="one target")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"), help="for failures (%(default)s)")
    parser.add_argument("--repeat", type=Path, help="a file of failures: try that case again")
    return parser


def repeat(file: Path) -> int:
    """The case of a failure again, without limits of memory, with its traceback."""
    kept = ast.literal_eval(file.read_text(encoding="utf-8").partition("\n\n")[2])
    with tempfile.TemporaryDirectory() as home:
        word, finding = attempt(kept["target"], kept["case"], Path(home) / "case")
    print(finding.what if finding else word)
    return 1 if finding else 0


class _Worker:
    """A process that tries batches; it shows which case it is at, for the day it does not come back."""

    def __init__(self, home: Path) -> None:
        self.home, self.beat = home, multiprocessing.get_context("spawn").Value("L", 0)
        self.name, self.seen, self.since = "", 0, time.monotonic()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, self.home, self.beat), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, name: str, cases: int, seed: int, known: list[str]) -> None:
        self.name, self.since = name, time.monotonic()
        self.pipe.send((name, cases, seed, known))

    @property
    def stuck(self) -> bool:
        if self.beat.value != self.seen:
            self.seen, self.since = self.beat.value, time.monotonic()
        return time.monotonic() - self.since > 30 + PATIENCE * target(self.name).SECONDS

    def replace(self, why: str) -> Finding:
        """Ends a process that is stuck or gone; the case it was at is the failure."""
        self.process.kill()
        self.process.join()
        current, code = self.home / "current", self.process.exitcode
        case = ast.literal_eval(current.read_text(encoding="utf-8")) if current.exists() else None
        self._start()
        place = f"the process {why}" if why != "died" else f"the process died ({code})"
        return Finding(self.name, f"{self.name}: {place}", place, case)


def _work(pipe: Connection, home: Path, beat: Any) -> None:
    home.mkdir(parents=True, exist_ok=True)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # what libraries print, Rust's panics among it
        os.dup2(nowhere, stream)
    for name in TARGETS:
        target(name)
    import torch

    torch.set_num_threads(1)
    limit_memory()

    def before(case: Any) -> None:
        (home / "current").write_text(repr(case), encoding="utf-8")
        beat.value += 1

    while True:
        name, cases, seed, known = pipe.recv()
        pipe.send(hunt(name, cases, seed, home / "case", known, before))


class _Hunt:
    """Hands out batches until all cases were tried or the time is over."""

    def __init__(self, wanted: dict[str, int], seed: int, seconds: float, workers: int, home: Path) -> None:
        self.wanted, self.seed, self.seconds = wanted, seed, seconds
        self.given, self.done = Counter[str](), Counter[str]()
        self.batches = Counter[str]()
        self.catch, self.words = Catch(), Counter[str]()
        self.workers = [_Worker(home / str(number)) for number in range(workers)]
        self.began = time.monotonic()

    def carry_out(self) -> tuple[Catch, Counter[str], float]:
        busy = {worker.pipe: worker for worker in self.workers if self._give(worker)}
        shown = 0.0
        while busy:
            for pipe in wait(list(busy), timeout=1):
                worker = busy.pop(pipe)  # type: ignore[call-overload]
                self._take(worker)
                if self._give(worker):
                    busy[worker.pipe] = worker
            for pipe, worker in list(busy.items()):
                if worker.stuck:
                    del busy[pipe]
                    self._lose(worker, "hangs")
                    if self._give(worker):
                        busy[worker.pipe] = worker
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                self._show()
        for worker in self.workers:
            worker.process.kill()
            worker.process.join()
        self._show()
        return self.catch, self.done, time.monotonic() - self.began

    def _give(self, worker: _Worker) -> bool:
        """The target that is furthest behind comes next."""
        left = {name: 1 - self.given[name] / wanted for name, wanted in self.wanted.items()}
        name = max(left, key=lambda each: left[each])
        if left[name] <= 0 or time.monotonic() - self.began > self.seconds:
            return False
        size = max(5, BATCH * target(name).SHARE // 500) if target(name).SHARE < 100 else BATCH
        cases = min(size, self.wanted[name] - self.given[name])
        self.given[name] += cases
        self.batches[name] += 1
        seed = self.seed * 1_000_003 + TARGETS.index(name) * 100_003 + self.batches[name]
        worker.give(name, cases, seed, list(self.catch.findings))
        return True

    def _take(self, worker: _Worker) -> None:
        try:
            catch = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(worker, "died")
            return
        tried = sum(catch.words.values())
        self.done[worker.name] += tried
        self.catch.words.update(catch.words)
        for finding in catch.findings.values():
            self.catch.add(finding)

    def _lose(self, worker: _Worker, why: str) -> None:
        self.catch.add(worker.replace(why))
        self.catch.words["failed"] += 1

    def _show(self) -> None:
        took, tried = time.monotonic() - self.began, sum(self.done.values())
        each = ", ".join(f"{name} {self.done[name]:,}" for name in self.wanted)
        rate, places = tried / max(took, 1), len(self.catch.findings)
        print(f"{took:5.0f} s  {tried:,} cases ({rate:.0f}/s): {each}; {places} failures", flush=True)


def conclude(catch: Catch, done: Counter[str], took: float, wanted: dict[str, int], out: Path) -> int:
    """Says what came of it, and writes a file for each failure."""
    words = ", ".join(f"{count:,} {word}" for word, count in catch.words.most_common())
    print(f"{sum(done.values()):,} cases in {took:.0f} s: {words}; memory {MEMORY / 1e9:g} GB a process")
    for number, finding in enumerate(sorted(catch.findings.values(), key=lambda each: each.place)):
        out.mkdir(parents=True, exist_ok=True)
        file = out / f"{finding.target}-{number:02}.txt"
        kept = {"target": finding.target, "case": finding.case}
        comment = "".join(f"# {line}\n" for line in finding.what.splitlines())
        file.write_text(f"{comment}\n{kept!r}\n", encoding="utf-8")
        print(f"{finding.times:6} x {finding.place}\n         python -m fuzz.run --repeat {file}")
    short = [f"{name} {done[name]:,} of {number:,}" for name, number in wanted.items() if done[name] < number]
    if short:
        print(f"not all cases were tried in time: {', '.join(short)}")
    return 1 if catch.findings or short else 0


if __name__ == "__main__":
    sys.exit(main())
