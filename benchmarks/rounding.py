"""How far kernels and the reference engine are from double precision where BatchNorm makes much of a
rounding: ``python -m benchmarks.rounding`` prints the table of docs/kernels.md (about a minute)."""

import argparse
from collections.abc import Iterator
from dataclasses import replace

import torch

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data import Dataset, Federation, SplitPlan, federate
from fedcohort.data.partition import partitioner
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.engines.vector.machine import usual_lanes
from fedcohort.testing import play
from fedcohort.testing.precise import precise

CASES = [(8, 1), (16, 1), (32, 1), (16, 4)]  # samples in a batch, and steps
QUARTERS = torch.tensor([0.25, 0.5, 0.75])


def images(samples: int) -> Federation:
    """Of one client that trains on so many, and holds as many out."""
    x = torch.randn(2 * samples, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = Dataset(x, torch.arange(len(x)) % 5, tuple("abcde"))
    return federate(data, partitioner("iid", clients=1), SplitPlan(test=0.5))


def weights(task: Task, engine: ReferenceEngine | None = None) -> torch.Tensor:
    state, _ = play(Method.parse("fedavg"), task, 1, engine=engine)
    return state.groups[0].weights.params.double()


def distances(batch: int, steps: int, starts: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """From double precision: the reference engine, and the kernels."""
    local = Local(lr=0.01, batch=batch, steps=steps)
    first = Task.of(images(batch * steps), "cifar_cnn", cohort=1, local=local)
    for seed in range(starts):
        task = replace(first, seed=seed)
        exact = weights(precise(task))
        yield weights(task) - exact, weights(task, PoolEngine(task, 1)) - exact


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rounding", description=__doc__)
    parser.add_argument("--starts", type=int, default=60, help="fresh networks (%(default)s)")
    starts = parser.parse_args().starts
    print(f"cifar_cnn on images of 8x8, {starts} starts, {usual_lanes()} lanes\n")
    print("| samples, steps | reference from double precision | kernels | ratio of the distances |")
    print("|---|---|---|---|")
    for batch, steps in CASES:
        found = list(distances(batch, steps, starts))
        largest = torch.tensor([[float(each.abs().max()) for each in both] for both in found])
        ratio = torch.tensor([float(kernels.norm() / reference.norm()) for reference, kernels in found])
        columns = [f"{each.median():.0e}, {each.max():.0e}" for each in largest.t()]
        low, middle, high = ratio.quantile(QUARTERS).tolist()
        spread = f"{low:.2f}, {middle:.2f}, {high:.2f} ({ratio.min():.2g} to {ratio.max():.2g})"
        print(f"| {batch}, {steps} | {' | '.join(columns)} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
