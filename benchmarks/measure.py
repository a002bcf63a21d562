"""What all runners share: their arguments, the stopwatch, and the JSON line they print.

Runs in every peer's environment, so it needs nothing beyond the standard library and NumPy.
"""

import argparse
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean

from fedcohort.bench.jobs import Data

PROC = Path("/proc")
TICK = os.sysconf("SC_CLK_TCK")


def read_arguments(**extra: tuple[type, object, str]) -> argparse.Namespace:
    """``--folder``, ``--rounds`` and a runner's own options, given as ``name=(type, default, help)``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="a job's folder")
    parser.add_argument("--rounds", type=int, required=True, help="timed rounds, after one to warm up")
    parser.add_argument("--threads", type=int, default=1, help="of the numerical library")
    for name, (kind, default, text) in extra.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    return parser.parse_args()


class Stopwatch:
    """Times rounds. The first is the warm-up: it ends the start-up and is left out of the timings.

    CPU time and memory are those of process ``root`` (default: this one) and all below it, and are read
    outside the timed spans.
    """

    def __init__(self, root: int | None = None) -> None:
        self.root = root or os.getpid()
        self.rounds_ms: list[float] = []
        self.start_up_s, self.cpu_s = 0.0, 0.0
        self.peak_mb = 0.0
        self._warm = False
        self._cpu_before = 0.0
        self._since = 0.0

    def begin(self) -> None:
        """A round starts."""
        self._cpu_before = _cpu_seconds(self.root)
        self._since = time.perf_counter()

    def end(self) -> None:
        """The round's new weights are there."""
        spent = time.perf_counter() - self._since
        if self._warm:
            self.rounds_ms.append(1000 * spent)
            self.cpu_s += _cpu_seconds(self.root) - self._cpu_before
        else:
            self.start_up_s, self._warm = _age(), True
        self.peak_mb = max(self.peak_mb, _memory_mb(self.root))


def report(
    engine: str,
    data: Data,
    watch: Stopwatch,
    accuracy: float,
    packages: list[str],
    samples_per_step: int | None = None,
) -> None:
    """Prints the result; ``samples_per_step`` is for an engine that fills up short batches."""
    timed = range(1, 1 + len(watch.rounds_ms))
    steps = mean(data.steps(number) for number in timed)
    samples = mean(data.samples(number) for number in timed)
    result = {
        "engine": engine,
        "job": data.job.name,
        "rounds_ms": [round(ms, 2) for ms in watch.rounds_ms],
        "samples_per_round": steps * samples_per_step if samples_per_step else samples,
        "steps_per_round": steps,
        "accuracy": round(accuracy, 4),
        "start_up_s": round(watch.start_up_s, 2),
        "cpu_s": round(watch.cpu_s, 3),
        "peak_rss_mb": round(watch.peak_mb),
        "versions": {"python": sys.version.split()[0], **{name: _version(name) for name in packages}},
    }
    print(json.dumps(result), flush=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _tree(root: int) -> list[int]:
    """A process and everything it started, however far down."""
    parents = {int(stat[0]): int(stat[2]) for stat in map(_stat, _pids()) if stat}
    family = [root]
    for pid in family:  # grows while we walk it
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def _pids() -> list[str]:
    return [path.name for path in PROC.iterdir() if path.name.isdigit()]


def _stat(pid: int | str) -> list[str]:
    """The fields of /proc/<pid>/stat: pid, state, parent, ...; empty when the process is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    head, _, tail = text.rpartition(")")  # the name between them may hold anything
    return [head.split()[0], *tail.split()]


def _cpu_seconds(root: int) -> float:
    """User and system time of the tree, with that of its dead children."""
    return sum(sum(map(int, stat[12:16])) for stat in map(_stat, _tree(root)) if stat) / TICK


def _memory_mb(root: int) -> float:
    """Proportional memory of the tree: pages that processes share are counted once."""
    total = 0
    for pid in _tree(root):
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def _age() -> float:
    """Seconds since this process was started."""
    started = int(_stat(os.getpid())[20]) / TICK
    return float((PROC / "uptime").read_text().split()[0]) - started
