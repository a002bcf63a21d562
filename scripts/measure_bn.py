"""What `local.bn` does to the personal accuracy of FedAvg; prints the table of docs/experiment-file.md.

.venv/bin/python scripts/measure_bn.py
"""

from dataclasses import replace
from statistics import mean, stdev
from typing import Literal, get_args

import torch
from torch import nn

import fedcohort as fc
from fedcohort.data.federation import Federation, Split
from fedcohort.util.keyed import generator

Statistics = Literal["average", "local", "fresh"]
CLIENTS, SEEDS = 20, (0, 1, 2)
KINDS = {  # alpha of the Dirichlet partition, and whether every client's pixels are scaled and shifted
    "labels differ": (0.3, False),
    "inputs differ": (100.0, True),
    "both differ": (0.3, True),
}


def normed(classes: int) -> nn.Module:
    hidden = [nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU()]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(32, classes))


def digits(alpha: float, moved: bool, seed: int) -> Federation:
    deal = fc.partitioner("dirichlet", clients=CLIENTS, alpha=alpha)
    federation = fc.federate(fc.load("digits"), deal, seed=seed)
    if not moved:
        return federation
    key = generator(seed, "inputs")
    scale, shift = 0.3 + 2 * torch.rand(CLIENTS, generator=key), 2 * torch.randn(CLIENTS, generator=key)

    def move(split: Split) -> Split:
        x = split.x.clone()
        for client in range(CLIENTS):
            rows = split.rows(client)
            x[rows] = x[rows] * scale[client] + shift[client]
        return replace(split, x=x)

    return replace(federation, train=move(federation.train), test=move(federation.test))


def accuracy(kind: str, bn: Statistics, seed: int) -> float:
    local = fc.Local(lr=0.05, epochs=4, batch=16, bn=bn)
    task = fc.Task.of(digits(*KINDS[kind], seed), normed, local=local, cohort=6, seed=seed)
    return fc.run("fedavg", task, rounds=40).metrics["personal.accuracy"]


def main() -> None:
    ways: tuple[Statistics, ...] = get_args(Statistics)
    print("| | " + " | ".join(f'`"{bn}"`' for bn in ways) + " |\n|---|---:|---:|---:|")
    for kind in KINDS:
        cells = []
        for bn in ways:
            found = [100 * accuracy(kind, bn, seed) for seed in SEEDS]
            cells.append(f"{mean(found):.1f} ± {stdev(found):.1f}")
        print(f"| {kind} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
