"""IFCA: the authors' experiments on MNIST (models are averaged) and on synthetic data (gradients are).

Put around it: examples and networks are ours, and so is the loss of the synthetic experiment, which is a
regression; nothing of torchvision is called.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crosschecks.authors.clone import Clone, pretend
from crosschecks.network import build, examples, first_network, flat
from crosschecks.ours import all_models, make_kinds, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared

REPOSITORY = "jichan3751/ifca"
GROUPS, ROUNDS = 5, 20


class Line(nn.Module):
    """A network without hidden layers, which tells its weights as the synthetic experiment asks for them."""

    def __init__(self, first: Tensor | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10, bias=False)
        if first is not None:
            nn.utils.vector_to_parameters(first, self.parameters())

    def weight(self) -> Tensor:
        return self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def theirs(problem: Arrays, clone: Path) -> Arrays:
    pretend("torchvision", "torchvision.datasets")
    sys.path[:0] = [str(clone / "mnist"), str(clone / "synthetic")]
    from train_cluster import TrainCluster
    from train_cluster_mnist import TrainMNISTCluster

    networks, lines = problem.pop("networks"), problem.pop("lines")
    given = Training(**problem)
    clients = [examples(given, client) for client in range(given.clients)]
    common = {"m": given.clients, "p": GROUPS, "tau": int(given.steps[0]), "n": 0, "d": 0, "train_seed": 0}

    mnist = TrainMNISTCluster(common)
    mnist.models = [first_network(replace(given, init=first)) for first in networks]
    mnist.criterion, mnist.load_data = nn.CrossEntropyLoss(), lambda client, **_: clients[client]
    mnist.dataset = {"train": {"cluster_assign": [0] * given.clients}}

    synthetic = TrainCluster({**common, "score": "set"})
    synthetic.models = [Line(torch.from_numpy(first)) for first in lines]
    synthetic.criterion = lambda y, logits: nn.functional.cross_entropy(logits, y)
    synthetic.dataset = {"data": clients, "params": [torch.zeros(10, 64)] * GROUPS}
    return {
        "models": path(mnist.models, lambda: mnist.train(mnist.test(train=True)["cluster_assign"], LR)),
        "gradients": path(synthetic.models, lambda: synthetic.train(LR)),
    }


def path(models: Sequence[nn.Module], learn: Callable[[], Any]) -> np.ndarray:
    """``[rounds, groups, P]``."""
    found = []
    for _ in range(ROUNDS):
        learn()
        found.append(np.stack([flat(model).numpy() for model in models]))
    return np.stack(found)


def rows(clone: Clone) -> list[Row]:
    problems = {"models": make_kinds(3, ROUNDS), "gradients": make_kinds(3, ROUNDS, steps=1)}
    networks = {"models": lambda: build(64, 10), "gradients": Line}
    tasks = {name: task_of(problem, networks[name]) for name, problem in problems.items()}
    firsts = {
        name: np.stack([first.params for first in task.model.inits(task.seed, GROUPS)])
        for name, task in tasks.items()
    }
    given = {"networks": firsts["models"], "lines": firsts["gradients"]}
    answer = clone.ask({**vars(problems["models"]), **given})

    def row(what: str, ours: str, theirs: str, reason: str = "") -> Row:
        found = np.stack(all_models(states(ours, problems[theirs], tasks[theirs])[1:]))
        label = f"{theirs} averaged", answer[theirs]
        return compared(what, (f"`{ours}`", found), label, reason, firsts[theirs])

    sizes = clone.reason(
        "The code weighs all clients of a group alike, {}; in its experiments they have equal numbers of "
        "examples. Here the mean is by samples, unless `fairavg` says otherwise.",
        ("mnist/train_cluster_mnist.py", "weights[name] /= len(local_models)"),
    )
    everybody = clone.reason(
        "Gradients are divided by the number of all clients, not of those in the group: {}. So does "
        "`average='gradient'`.",
        ("synthetic/train_cluster.py", "    tmp /= m"),
    )
    ifca = f"ifca(groups={GROUPS})"
    return [
        row("IFCA", f"{ifca}+fairavg", "models"),
        row("IFCA, by samples", ifca, "models", sizes),
        row("IFCA, gradients", f"{ifca[:-1]}, average='gradient')+fairavg", "gradients"),
        row("IFCA, gradients", f"{ifca}+fairavg", "gradients", everybody),
    ]
