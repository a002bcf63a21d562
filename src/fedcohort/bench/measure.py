"""Timings of one machine, as ratios of runs that take turns: engine, reference, bare loop, engine, ..."""

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedcohort.bench import plain_torch
from fedcohort.bench.gemm import limit
from fedcohort.bench.jobs import JOBS, PAPERS, Data, load, write
from fedcohort.bench.scale import scale
from fedcohort.bench.task import build_task, first_state
from fedcohort.core.engine import Engine
from fedcohort.core.round.loop import step
from fedcohort.data.locate import Places
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.util.cpu import usable_cores
from fedcohort.util.errors import UserError

TRAINING = {**JOBS, **PAPERS}
ALL = (*TRAINING, "scale", "startup")
COMPILED = ("lenet5", "cifar_cnn")  # whose kernels are waited for: of the usual size, and the dearest


def bench(jobs: list[str], repeats: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The named jobs, each measured ``repeats`` times after a round to warm up."""
    for job in jobs:
        if job not in ALL:
            raise UserError(f"--jobs: there is no job '{job}'; known: {', '.join(ALL)}")
        if job in TRAINING and repeats >= TRAINING[job].rounds:
            most = TRAINING[job].rounds - 1
            raise UserError(f"--repeats: after its warm-up job {job} has {most} rounds, ask for no more")
    torch.set_num_threads(1)
    results: dict[str, Any] = {"machine": machine(), "jobs": {}}
    for job in jobs:
        say(f"job {job} ...")
        if job in TRAINING:
            cache = Places.of(None).cache / "bench"
            results["jobs"][job] = training(load(write(TRAINING[job], cache)), repeats)
        else:
            results["jobs"][job] = scale(repeats) if job == "scale" else startup(repeats)
    return results


def training(data: Data, repeats: int) -> dict[str, Any]:
    """Milliseconds a round of the engine, the reference loop and the bare PyTorch loop, measured in turns."""
    method, task = build_task(data)
    profile = task.profile(method)
    engines: dict[str, Engine] = {"engine": PoolEngine(task), "reference": ReferenceEngine(task)}
    states = {name: first_state(method, task, data) for name in engines}
    bare = bare_rounds(data)
    times: dict[str, list[float]] = {"engine": [], "reference": [], "bare": []}
    gaps: list[float] = []  # the largest of any weight between engine and reference, after each round
    for number in range(1 + repeats):
        for name, engine in engines.items():
            since = time.perf_counter()
            states[name], _ = step(method, states[name], task, profile, engine)
            times[name].append(time.perf_counter() - since)
        ours, theirs = (states[name].groups[0].weights.params for name in engines)
        gaps.append(float(f"{(ours - theirs).abs().max():.2g}"))
        since = time.perf_counter()
        bare(number)
        times["bare"].append(time.perf_counter() - since)
    timed = {name: [1000 * t for t in taken[1:]] for name, taken in times.items()}
    return {
        **{f"{name}_ms": round(statistics.median(ms), 1) for name, ms in timed.items()},
        **{f"{name}_range_ms": [round(min(ms), 1), round(max(ms), 1)] for name, ms in timed.items()},
        **ratio("bare", timed["bare"], timed["engine"]),
        **ratio("reference", timed["reference"], timed["engine"]),
        **({} if data.job.convolves else beside_products(data, timed["engine"])),
        "samples_per_second": round(data.visits(1) / statistics.median(timed["engine"]) * 1000),
        "first_weight_difference": gaps[0],
        "max_weight_difference": gaps[-1],
    }


def beside_products(data: Data, timed: list[float]) -> dict[str, float]:
    """Which share of these rounds' time their matrix products alone would take on all cores."""
    floor = limit(data, range(1, 1 + len(timed)))
    return {
        "gemm_ms_one_core": floor["ms_per_round"],
        "gemm_share": round(floor["ms_per_round"] / usable_cores() / statistics.median(timed), 3),
        "gflop_per_second_one_core": floor["gflop_per_second"],
    }


def bare_rounds(data: Data) -> Callable[[int], None]:
    """One round of the plain loop at a time."""
    network = plain_torch.first_network(data)
    weights = plain_torch.get_weights(network)

    def run(number: int) -> None:
        nonlocal weights
        total, samples = torch.zeros_like(weights), data.samples(number)
        for place in range(data.job.cohort):
            plain_torch.set_weights(network, weights)
            x, y = plain_torch.examples(data, number, place)
            plain_torch.train(network, x, y, data.job)
            total.add_(plain_torch.get_weights(network), alpha=len(y) / samples)
        weights = total

    return run


def startup(repeats: int) -> dict[str, Any]:
    """Seconds until the command line answers, until the library is ready to train, and until kernels are
    compiled."""
    calls = {
        "help_s": ["-m", "fedcohort", "--help"],
        "import_torch_s": ["-c", "import torch"],
        "ready_s": ["-c", "import fedcohort.engines.pool"],
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + repeats):
        for name, words in calls.items():
            since = time.perf_counter()
            subprocess.run(  # noqa: S603  # our own words
                [sys.executable, *words], check=True, capture_output=True, cwd=Path.cwd()
            )
            taken[name].append(time.perf_counter() - since)
    medians = {name: round(statistics.median(seconds[1:]), 3) for name, seconds in taken.items()}
    return {**medians, **{f"{name}_kernels_s": waits for name in COMPILED if (waits := first_uses(name))}}


def first_uses(model: str) -> dict[str, float]:
    """Seconds until the kernels of a network are ready in the first process that needs them, and in the next;
    nothing where there are none."""
    with tempfile.TemporaryDirectory() as cache:
        words = [sys.executable, "-W", "ignore", "-m", "fedcohort.bench.first_use", model]
        options: Any = {"check": True, "stdout": subprocess.PIPE, "text": True}
        options |= {"env": os.environ | {"FEDCOHORT_CACHE": cache}}
        told = [subprocess.run(words, **options).stdout for _ in range(2)]  # noqa: S603  # our own words
    return {use: round(float(text), 2) for use, text in zip(("first", "later"), told, strict=True) if text}


def ratio(name: str, slow: list[float], fast: list[float]) -> dict[str, Any]:
    """How many times as fast, round by round: median and range of the pairs."""
    pairs = [round(a / b, 2) for a, b in zip(slow, fast, strict=True)]
    return {f"ratio_{name}": statistics.median(pairs), f"ratio_{name}_range": [min(pairs), max(pairs)]}


def machine() -> dict[str, Any]:
    names: list[str] = []
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": usable_cores(),
        "load": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
    }
