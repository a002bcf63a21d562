"""Measures fedcohort against its peers: ``python -m benchmarks.run_peers`` (``make bench-peers``).

All engines run the same jobs (:mod:`fedcohort.bench.jobs`) in turn, several times over, so that a machine
that is slower for a while is slower for all of them; speeds are compared within a pass. Then every engine
runs each job to its end once, and the accuracies must agree. Writes ``results.json`` and ``RESULTS.md``.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.runners import CORES, HERE, RUNNERS, RunError, Runner, call, install
from benchmarks.tables import REFERENCE, disagreeing, write_report
from fedcohort.bench.jobs import JOBS, Job, write

TIMED_ROUNDS = {"A": 8, "B": 3, "C": 4}  # after the warm-up
SHUFFLES = 6  # runs of the plain loop that show how much the order of examples matters
CACHE = Path.home() / ".cache" / "fedcohort" / "bench"
Results = dict[str, Any]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", default=",".join(JOBS), help="which, separated by commas")
    parser.add_argument(
        "--peers", default=",".join(list(RUNNERS)[1:]), help="which engines beside fedcohort, by commas"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="passes over all engines; 0: check accuracies only"
    )
    parser.add_argument("--timed-rounds", type=int, help="in each run, after the warm-up; default by job")
    parser.add_argument(
        "--accuracy-rounds", type=int, help="stop the accuracy check here; default: the whole job"
    )
    parser.add_argument("--engine", default="reference", help="of fedcohort: a module in fedcohort.engines")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where the jobs' arrays are kept")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for results.json and RESULTS.md")
    arguments = parser.parse_args()
    for names, known in ((arguments.jobs, JOBS), (arguments.peers, RUNNERS)):
        unknown = [name for name in names.split(",") if name and name not in known]
        if unknown:
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    if arguments.accuracy_rounds is not None and arguments.accuracy_rounds < 2:
        parser.error("--accuracy-rounds must be at least 2: the first round is the warm-up")
    if arguments.timed_rounds is not None and arguments.timed_rounds < 1:
        parser.error("--timed-rounds must be at least 1")
    return arguments


class Benchmark:
    """One measurement; ``results`` is what results.json holds, written again after every step."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.jobs = [JOBS[name] for name in arguments.jobs.split(",")]
        names = dict.fromkeys(["fedcohort", REFERENCE, *filter(None, arguments.peers.split(","))])
        self.runners = [RUNNERS[name] for name in names]
        self.results: Results = {
            "machine": describe_machine(),
            "engine": arguments.engine,
            "started": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "jobs": {job.name: self.rounds(job) for job in self.jobs},
            "gemm": [],  # one entry per pass and job of perceptrons
            "passes": [],  # one entry per pass, job and engine
            "profile": [],  # one entry per job: where fedcohort's time goes on one worker
            "accuracy": {},  # job: {engine: after the last round}
            "command_s": {},  # job: {engine: seconds of the whole job, from starting Python to the end}
            "shuffled": {},  # job: accuracies of the plain loop with other orders of the examples
            "failures": [],  # engine and reason
        }

    def run(self) -> None:
        self.install()
        folders = {job.name: write(job, self.arguments.cache) for job in self.jobs}
        for number in range(self.arguments.repeats):
            for job in self.jobs:
                self.measure(number, job, folders[job.name])
        for job in self.jobs:
            options = ["--folder", str(folders[job.name]), "--rounds", str(self.rounds(job)["timed"])]
            self.results["profile"].append(call([sys.executable, "-m", "benchmarks.time_spent", *options]))
            self.check_accuracy(job, folders[job.name])

    def install(self) -> None:
        for peer in dict.fromkeys(runner.peer for runner in self.runners if runner.peer):
            try:
                install(peer)
            except RunError as error:
                for runner in self.runners:
                    if runner.peer == peer:
                        self.fail(runner, f"cannot be installed: {error}")
        missing = {failure["engine"] for failure in self.results["failures"]}
        self.runners = [runner for runner in self.runners if runner.name not in missing]

    def measure(self, number: int, job: Job, folder: Path) -> None:
        """One pass: all engines one after the other, each pass starting with another one."""
        rounds = self.rounds(job)["timed"]
        options = ["--folder", str(folder), "--rounds", str(rounds)]
        if not job.convolves:
            gemm = call([sys.executable, "-m", "benchmarks.gemm", *options])
            self.results["gemm"].append({"pass": number, **gemm})
        turn = number % len(self.runners)
        for runner in [*self.runners[turn:], *self.runners[:turn]]:
            load = os.getloadavg()[0]
            if result := self.attempt(runner, folder, rounds, f"pass {number + 1}, job {job.name}"):
                entry = {"pass": number, "load": round(load, 2), **result, "engine": runner.name}
                self.results["passes"].append(entry)
                self.save()

    def check_accuracy(self, job: Job, folder: Path) -> None:
        """Every engine runs the job to its end, and the plain loop also in other orders of the examples."""
        last = self.rounds(job)["accuracy"]
        found = self.results["accuracy"].setdefault(job.name, {})
        seconds = self.results["command_s"].setdefault(job.name, {})
        for runner in self.runners:
            since = time.perf_counter()
            if result := self.attempt(runner, folder, last - 1, f"accuracy, job {job.name}"):
                seconds[runner.name] = round(time.perf_counter() - since, 2)
                found[runner.name] = result["accuracy"]
                self.save()
        spread = self.results["shuffled"].setdefault(job.name, [])
        for seed in range(1, 1 + SHUFFLES):
            extra = ("--shuffle", str(seed))
            what = f"accuracy, job {job.name}, shuffle {seed}"
            if result := self.attempt(RUNNERS[REFERENCE], folder, last - 1, what, *extra):
                spread.append(result["accuracy"])
                self.save()

    def rounds(self, job: Job) -> dict[str, int]:
        """How many are timed in a pass (after the warm-up), and how many the accuracy check takes."""
        timed = min(self.arguments.timed_rounds or TIMED_ROUNDS[job.name], job.rounds - 1)
        return {"timed": timed, "accuracy": min(self.arguments.accuracy_rounds or job.rounds, job.rounds)}

    def attempt(self, runner: Runner, folder: Path, rounds: int, what: str, *extra: str) -> Results | None:
        if runner.name == "fedcohort":
            extra = (*extra, "--engine", self.arguments.engine)
        try:
            result = call(runner.command(folder, rounds, *extra), runner.threads)
        except RunError as error:
            self.fail(runner, f"{what}: {error}")
            return None
        mean = sum(result["rounds_ms"]) / max(1, len(result["rounds_ms"]))
        print(f"{what}: {runner.name:<10} {mean:8.0f} ms a round, accuracy {result['accuracy']}", flush=True)
        return result

    def fail(self, runner: Runner, reason: str) -> None:
        print(f"{runner.name}: {reason}", file=sys.stderr, flush=True)
        self.results["failures"].append({"engine": runner.name, "reason": reason})
        self.save()

    def save(self) -> None:
        out = self.arguments.out
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")
        write_report(out)


def describe_machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": model, "cores": CORES, "memory_gb": round(memory), "system": platform.platform()}


def main() -> int:
    benchmark = Benchmark(read_arguments())
    benchmark.run()
    wrong = disagreeing(benchmark.results)
    for text in wrong:
        print(text, file=sys.stderr)
    print(f"written: {benchmark.arguments.out / 'RESULTS.md'}")
    return 1 if wrong or benchmark.results["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
