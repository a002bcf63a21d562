"""What a perceptron's round costs if nothing but its matrix products takes time: PyTorch's, at the job's own
shapes, on one core.

Convolutions have no such limit: compiled kernels leave out what has no slope, so they may take less time than
PyTorch's products over patches.
"""

import time
from math import prod

import torch

from fedcohort.bench.jobs import Data, Job

Shape = tuple[int, int, int]  # [m, k] @ [k, n]


def products(job: Job) -> list[Shape]:
    """The matrix products of one step: forward, for the weights, and for the inputs of all but the first
    layer."""
    shapes: list[Shape] = []
    for number, ((n, k), _) in enumerate(job.layers):
        m = job.batch
        shapes += [(m, k, n), (n, m, k)] + ([(m, n, k)] if number else [])
    return shapes


def flop(shapes: list[Shape]) -> int:
    return sum(2 * prod(shape) for shape in shapes)


def seconds_per_step(shapes: list[Shape], repeats: int = 50, bouts: int = 5) -> float:
    """The best of a few bouts: this is a limit, so the least disturbed one counts."""
    pairs = [(torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)) for m, k, n in shapes]
    best = float("inf")
    for _ in range(bouts):
        since = time.perf_counter()
        for _ in range(repeats):
            for a, b, out in pairs:
                torch.mm(a, b, out=out)
        best = min(best, (time.perf_counter() - since) / repeats)
    return best


def limit(data: Data, rounds: range) -> dict[str, float]:
    """What one core needs for the matrix products of these rounds, on average."""
    shapes = products(data.job)
    seconds = seconds_per_step(shapes)
    steps = sum(data.visits(number) for number in rounds) / len(rounds) / data.job.batch  # short ones in part
    return {
        "gflop_per_round": round(flop(shapes) * steps / 1e9, 3),
        "gflop_per_second": round(flop(shapes) / seconds / 1e9, 1),
        "ms_per_round": round(1000 * seconds * steps, 1),
    }
