"""IFCA: the authors' experiments on MNIST (models are averaged) and on synthetic data (gradients are).

Put around it: examples and networks are ours, and so is the loss of the synthetic experiment, which is a
regression; nothing of torchvision is called.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import nn

from crosschecks.authors.clone import Clone
from crosschecks.network import build, examples, first_network, flat
from crosschecks.ours import all_models, make_kinds, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared

REPOSITORY = "jichan3751/ifca"
GROUPS, ROUNDS = 5, 20


def line() -> nn.Module:
    """A network that the synthetic experiment can have: without hidden layers, and nothing but weights."""
    return nn.Linear(64, 10, bias=False)


def theirs(problem: Arrays, clone: Path) -> Arrays:
    networks, lines = problem.pop("networks"), problem.pop("lines")
    given = Training(**problem)
    clients = [examples(given, client) for client in range(given.clients)]
    common = {"m": given.clients, "p": GROUPS, "tau": int(given.steps[0]), "n": 0, "d": 0, "train_seed": 0}
    sys.modules.update({name: MagicMock() for name in ("torchvision", "torchvision.datasets")})
    sys.path[:0] = [str(clone / "mnist"), str(clone / "synthetic")]
    from train_cluster import TrainCluster
    from train_cluster_mnist import TrainMNISTCluster

    mnist = TrainMNISTCluster(common)
    mnist.models = [first_network(replace(given, init=first)) for first in networks]
    mnist.criterion, mnist.load_data = nn.CrossEntropyLoss(), lambda client, **_: clients[client]
    mnist.dataset = {"train": {"cluster_assign": [0] * given.clients}}

    synthetic = TrainCluster({**common, "score": "set"})
    synthetic.models = [Asked(torch.from_numpy(first)) for first in lines]
    synthetic.criterion = lambda y, logits: nn.functional.cross_entropy(logits, y)
    synthetic.dataset = {"data": clients, "params": [torch.zeros(10, 64)] * GROUPS}
    return {
        "models": path(mnist.models, lambda: mnist.train(mnist.test(train=True)["cluster_assign"], LR)),
        "gradients": path(synthetic.models, lambda: synthetic.train(LR)),
    }


class Asked(nn.Module):
    """A line that tells its weights as the synthetic experiment asks for them."""

    def __init__(self, first: torch.Tensor) -> None:
        super().__init__()
        self.line = line()
        nn.utils.vector_to_parameters(first, self.line.parameters())

    def weight(self) -> torch.Tensor:
        return self.line.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x)


def path(models: Sequence[nn.Module], learn: Callable[[], Any]) -> np.ndarray:
    """``[rounds, groups, P]``."""
    found = []
    for _ in range(ROUNDS):
        learn()
        found.append(np.stack([flat(model).numpy() for model in models]))
    return np.stack(found)


def rows(clone: Clone) -> list[Row]:
    several, single = make_kinds(3, ROUNDS), make_kinds(3, ROUNDS, steps=1)
    tasks = task_of(several, lambda: build(64, 10)), task_of(single, line)
    networks, lines = (np.stack([f.params.numpy() for f in t.model.inits(t.seed, GROUPS)]) for t in tasks)
    answer = clone.ask({**vars(several), "networks": networks, "lines": lines})

    def row(what: str, ours: str, theirs: str, reason: str = "") -> Row:
        problem, task, first = (several, tasks[0], networks) if theirs == "models" else (single, tasks[1], lines)
        found = np.stack(all_models(states(ours, problem, task)[1:]))
        return compared(what, (f"`{ours}`", found), (f"{theirs} averaged", answer[theirs]), reason, first)

    sizes = clone.reason(
        "The code weighs all clients of a group alike, {}, as theirs have equal sizes; here, as everywhere, "
        "the mean is by samples unless `fairavg` says otherwise.",
        ("mnist/train_cluster_mnist.py", "weights[name] /= len(local_models)"),
    )
    cohort = clone.reason(
        "Gradients are divided by the number of all clients, not of those in the group: {}.",
        ("synthetic/train_cluster.py", "    tmp /= m"),
    )
    whole = f"ifca(groups={GROUPS})"
    gradient = f"ifca(groups={GROUPS}, average='gradient')+fairavg"
    return [
        row("IFCA", f"{whole}+fairavg", "models"),
        row("IFCA, by samples", whole, "models", sizes),
        row("IFCA, gradients", gradient, "gradients"),
        row("IFCA, gradients", f"{whole}+fairavg", "gradients", cohort),
    ]
