"""The command that measures: ``bench``."""

import json
from typing import Annotated

import typer

from fedcohort.cli.options import AsJson


def bench(
    jobs: Annotated[
        str, typer.Option(help="Of A, B, C, E, P, startup, and scale, which takes many minutes.")
    ] = "A,B,C,E,P,startup",
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds of each job, after one to warm up.")] = 7,
    as_json: AsJson = False,
) -> None:
    """How fast this machine trains: the engine beside the reference and a bare PyTorch loop.

    A: 100 clients, MLP. B: 100 clients, LeNet-5. C: 1,000 small clients, MLP. E: FedEntOpt's protocol
    (LeNet-5, momentum, weight decay, changed images). P: Clust-PSI-PFL's (its network for Fashion-MNIST,
    Adam). scale: reading, diagnosing, grouping and choosing among 1,000,000 clients. startup: seconds until
    the command line answers and kernels are compiled. gemm share: how much of its time a perceptron's matrix
    products alone take.
    """
    from fedcohort.bench.measure import bench as measure
    from fedcohort.cli.tables import bench_tables, messages, results

    asked = [job.strip() for job in jobs.split(",") if job.strip()]
    out = measure(asked, repeats, lambda text: None if as_json else messages.print(text, markup=False))
    if as_json:
        print(json.dumps(out))
    else:
        results.print(bench_tables(out))
