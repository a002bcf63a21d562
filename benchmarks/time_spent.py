"""Where a round's time goes on one worker, as a runner: prints one JSON line.

PyTorch's profiler adds to small operations, so the parts are shares of the profiled time, and the round
itself is timed without it.
"""

import json
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.measure import read_arguments
from fedcohort.bench.jobs import load
from fedcohort.bench.task import build_task, first_state
from fedcohort.core.round.loop import step
from fedcohort.engines.pool import PoolEngine

PARTS = {
    "matrix products and convolutions": (
        "mm", "addmm", "addmm_", "bmm", "baddbmm_", "matmul", "linear", "mv", "addmv_", "mkldnn_convolution",
        "convolution_backward",
    ),
    "copying examples": ("index_select", "index", "embedding"),
}  # fmt: skip
KERNELS, OTHER, PYTHON = "compiled kernels", "element-wise operations", "Python and the server"


def name_kernels() -> None:
    """The profiler knows PyTorch's operations; compiled kernels are told to it."""
    if find_spec("llvmlite") is None:
        return
    from fedcohort.engines.vector.program import Program

    run = Program.run

    def named(*given: Any) -> None:
        with record_function(KERNELS):
            run(*given)

    Program.run = named  # type: ignore[method-assign]


def shares(rounds: Callable[[], object]) -> dict[str, float]:
    """Of the time that these rounds take, what each part takes."""
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        since = time.perf_counter()
        rounds()
        spent = time.perf_counter() - since
    parts = dict.fromkeys([KERNELS, *PARTS, OTHER], 0.0)
    for event in watched.key_averages():
        if event.key == KERNELS:
            parts[KERNELS] += event.self_cpu_time_total / 1e6
        elif event.key.startswith("aten::"):
            name = event.key.removeprefix("aten::")
            part = next((part for part, names in PARTS.items() if name in names), OTHER)
            parts[part] += event.self_cpu_time_total / 1e6
    parts[PYTHON] = max(0.0, spent - sum(parts.values()))
    return {part: round(seconds / spent, 3) for part, seconds in parts.items()}


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(1)
    name_kernels()
    data = load(arguments.folder)
    method, task = build_task(data)
    told, state = task.profile(method), first_state(method, task, data)
    engine = PoolEngine(task, workers=1)

    def rounds() -> float:
        nonlocal state
        since = time.perf_counter()
        for _ in range(arguments.rounds):
            state, _ = step(method, state, task, told, engine)
        return time.perf_counter() - since

    state, _ = step(method, state, task, told, engine)
    state, plain = first_state(method, task, data), rounds()
    state = first_state(method, task, data)
    share = shares(rounds)
    ms = round(1000 * plain / arguments.rounds, 1)
    print(json.dumps({"job": data.job.name, "ms_per_round": ms, "share": share}))


if __name__ == "__main__":
    main()
