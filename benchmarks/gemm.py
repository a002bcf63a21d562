"""The limit of a job on this machine, as a runner: prints one JSON line."""

import json

import torch

from benchmarks.measure import read_arguments
from fedcohort.bench.gemm import limit
from fedcohort.bench.jobs import load


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(1)
    data = load(arguments.folder, shared=True)
    print(json.dumps({"job": data.job.name, **limit(data, range(1, 1 + arguments.rounds))}))


if __name__ == "__main__":
    main()
