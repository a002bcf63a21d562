"""CAFA: the authors' clusters, local training and averaging, and what they compare it with.

Put around it: clients' examples are ours, neither shuffled nor changed; there is no GPU; nothing of
torchvision is called. A round is put together here from their functions: theirs reports to a service.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crosschecks.authors.clone import Clone, pretend
from crosschecks.network import examples, first_network, flat
from crosschecks.ours import CLIENTS, first_models, make_training, states, task_of
from crosschecks.problem import LR, Arrays, Training
from crosschecks.rows import Row, compared

REPOSITORY = "Gengsheng-Li/Non-IID-Robust-Federated-Learning-Algorithms"
CLUSTERS, HELD_OUT, MU = 6, 0.2, 0.5


def theirs(problem: Arrays, clone: Path) -> Arrays:
    pretend("torchvision", "torchvision.transforms", "wandb")
    import train
    import ultils

    torch.Tensor.cuda = lambda tensor: tensor
    given = Training(**problem)
    split = [(given.x[own], given.y[own]) for own in (given.owner == k for k in range(given.clients))]
    ultils.get_cifar10 = lambda: (given.x, given.y, given.x, given.y)
    ultils.get_default_data_transforms = lambda verbose: (None, None)
    ultils.split_image_data_realwd = lambda *_, **__: split
    ultils.shuffle_list = lambda clients: clients
    kept, held, _, _, group, sizes, _ = ultils.get_data_loaders_val(given.clients, len(given.y), CLUSTERS)
    whole = [[examples(given, client)] for client in range(given.clients)]  # a "loader" of one batch each
    lengths = np.bincount(given.owner)

    def pulled(own: nn.Module, sgd: Any, data: Any, steps: int, start: nn.Module) -> None:
        loss = nn.CrossEntropyLoss()
        train.local_train_FedProx(own, start, data, loss, sgd, steps, MU, torch.device("cpu"))

    def plain(own: nn.Module, sgd: Any, data: Any, steps: int, start: nn.Module) -> None:
        ultils.client_update(own, sgd, data, steps)

    def path(average: Callable[..., None], data: Any, learn: Callable[..., None] = plain) -> np.ndarray:
        model, models = network(given), []
        for cohort in given.cohorts:
            trained = [network(given) for _ in cohort]
            for client, own in zip(cohort, trained, strict=True):
                own.load_state_dict(model.state_dict())
                sgd = torch.optim.SGD(own.parameters(), LR)
                learn(own, sgd, data[client], int(given.steps[client]), model)
            average(model, trained, cohort)
            models.append(flat(model).numpy())
        return np.stack(models)

    def scored(average: Callable[..., None]) -> Callable[..., None]:
        return lambda model, trained, cohort: average(
            model, trained, [held[k] for k in cohort], [sizes[k] for k in cohort], group, cohort, CLUSTERS
        )

    def clustered(model: nn.Module, trained: list[nn.Module], cohort: np.ndarray) -> None:
        ultils.server_aggregate_kmeans(model, trained, group, cohort, CLUSTERS, given.clients)

    def sized(average: Callable[..., None]) -> Callable[..., None]:
        return lambda model, trained, cohort: average(model, trained, lengths[cohort])

    return {
        "cafa": path(scored(ultils.server_aggregate_ligeng_wk), kept),
        "accuracy": path(scored(ultils.server_aggregate_ligeng_wok), kept),
        "clusters": path(clustered, kept),
        "fedavg": path(sized(ultils.server_aggregate_FA), whole),
        "fedprox": path(sized(ultils.server_aggregate_FedProx), whole, pulled),
    }


def network(given: Training) -> nn.Module:
    return nn.Sequential(first_network(given), nn.LogSoftmax(1))


def rows(clone: Clone) -> list[Row]:
    problem = make_training([5] * CLIENTS)
    answer = clone.ask(vars(problem))
    part, whole = (task_of(problem, lambda: first_network(problem), share) for share in (HELD_OUT, 0))

    def row(what: str, ours: str, theirs: str, reason: str = "") -> Row:
        found = first_models(states(ours, problem, whole if theirs.startswith("fed") else part)[1:])
        return compared(what, (f"`{ours}`", found), (f"its {theirs}", answer[theirs]), reason, problem.init)

    even = clone.reason(
        "What CAFA's code calls FedAvg weighs all clients alike: {}. So does `fairavg`.",
        ("ultils.py", "### This will take simple mean of the weights of models ###"),
    )
    detached = clone.reason(
        "What it calls FedProx is FedAvg: the pull is computed from weights that have no gradient, {}.",
        ("train.py", "prox_term += ((client_model.state_dict()[param_key]"),
    )
    return [
        row("CAFA", f"cafa(clusters={CLUSTERS})", "cafa"),
        row("CAFA, accuracy alone", "cafa(variant='abfa')", "accuracy"),
        row("CAFA, clusters alone", f"cafa(variant='cbcc', clusters={CLUSTERS})", "clusters"),
        row("FedAvg in CAFA's code", "fairavg", "fedavg"),
        row("FedAvg in CAFA's code", "fedavg", "fedavg", even),
        row("FedProx in CAFA's code", "fedavg", "fedprox"),
        row("FedProx in CAFA's code", f"fedprox(mu={MU})", "fedprox", detached),
    ]
