"""CAFA: the authors' clusters, local training and averaging, and what they compare it with.

Put around it: clients' examples are ours, neither shuffled nor changed; there is no GPU; nothing of
torchvision is called. A round is put together here from their functions: theirs reports to a service.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import nn

from crosschecks.authors.clone import Clone
from crosschecks.network import examples, first_network, flat
from crosschecks.ours import CLIENTS, first_models, make_training, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared

REPOSITORY = "Gengsheng-Li/Non-IID-Robust-Federated-Learning-Algorithms"
CLUSTERS, HELD_OUT, MU = 6, 0.2, 0.5


def theirs(problem: Arrays, clone: Path) -> Arrays:
    sys.modules.update({name: MagicMock() for name in ("torchvision", "torchvision.transforms", "wandb")})
    import train
    import ultils

    torch.Tensor.cuda = lambda tensor: tensor
    given, cpu = Training(**problem), torch.device("cpu")
    split = [(given.x[own], given.y[own]) for own in (given.owner == k for k in range(given.clients))]
    ultils.get_cifar10 = lambda: (given.x, given.y, given.x, given.y)
    ultils.get_default_data_transforms = lambda verbose: (None, None)
    ultils.split_image_data_realwd = lambda *_, **__: split
    ultils.shuffle_list = lambda clients: clients
    kept, held, _, _, labels, sizes, _ = ultils.get_data_loaders_val(given.clients, len(given.y), CLUSTERS)
    whole = [[examples(given, client)] for client in range(given.clients)]  # a "loader" of one batch each
    lengths = np.bincount(given.owner)

    def learn(start: nn.Module, own: nn.Module, data: object, steps: int) -> None:
        ultils.client_update(own, torch.optim.SGD(own.parameters(), LR), data, steps)

    def pulled(start: nn.Module, own: nn.Module, data: object, steps: int) -> None:
        sgd, loss = torch.optim.SGD(own.parameters(), LR), nn.CrossEntropyLoss()
        train.local_train_FedProx(own, start, data, loss, sgd, steps, MU, cpu)

    def path(average: Callable[..., None], *told: Callable[[np.ndarray], object], data=kept, learn=learn) -> np.ndarray:
        model, models = network(given), []
        for cohort in given.cohorts:
            trained = [network(given) for _ in cohort]
            for client, own in zip(cohort, trained, strict=True):
                own.load_state_dict(model.state_dict())
                learn(model, own, data[client], int(given.steps[client]))
            average(model, trained, *(tell(cohort) for tell in told))
            models.append(flat(model).numpy())
        return np.stack(models)

    here, group, number = (lambda cohort: cohort), (lambda _: labels), (lambda _: CLUSTERS)
    scores = (lambda cohort: [held[k] for k in cohort]), (lambda cohort: [sizes[k] for k in cohort]), group, here, number
    return {
        "cafa": path(ultils.server_aggregate_ligeng_wk, *scores),
        "accuracy": path(ultils.server_aggregate_ligeng_wok, *scores),
        "clusters": path(ultils.server_aggregate_kmeans, group, here, number, lambda _: given.clients),
        "fedavg": path(ultils.server_aggregate_FA, lengths.take, data=whole),
        "fedprox": path(ultils.server_aggregate_FedProx, lengths.take, data=whole, learn=pulled),
    }


def network(given: Training) -> nn.Module:
    return nn.Sequential(first_network(given), nn.LogSoftmax(1))


def rows(clone: Clone) -> list[Row]:
    problem = make_training([5] * CLIENTS)
    answer = clone.ask(vars(problem))
    part, whole = (task_of(problem, lambda: first_network(problem), share) for share in (HELD_OUT, 0))

    def row(what: str, ours: str, theirs: str, reason: str = "") -> Row:
        found = first_models(states(ours, problem, whole if theirs.startswith("fed") else part)[1:])
        return compared(what, (f"`{ours}`", found), (theirs, answer[theirs]), reason, problem.init)

    even = clone.reason(
        "What this code calls FedAvg weighs all clients alike: {}. So does `fairavg`.",
        ("ultils.py", "### This will take simple mean of the weights of models ###"),
    )
    detached = clone.reason(
        "What it calls FedProx is FedAvg: the pull is computed from weights without a gradient, {}.",
        ("train.py", "prox_term += ((client_model.state_dict()[param_key]"),
    )
    return [
        row("CAFA", f"cafa(clusters={CLUSTERS})", "cafa"),
        row("CAFA, accuracy alone", "cafa(variant='abfa')", "accuracy"),
        row("CAFA, clusters alone", f"cafa(variant='cbcc', clusters={CLUSTERS})", "clusters"),
        row("FedAvg of CAFA's code", "fairavg", "fedavg"),
        row("FedAvg of CAFA's code", "fedavg", "fedavg", even),
        row("FedProx of CAFA's code", "fedavg", "fedprox"),
        row("FedProx of CAFA's code", f"fedprox(mu={MU})", "fedprox", detached),
    ]
