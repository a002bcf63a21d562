"""The jobs' networks and their local training in plain PyTorch: what a user of a framework writes himself."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedcohort.bench.jobs import CLASSES, Data, Job


def build_network(job: Job) -> nn.Module:
    if job.model == "mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(),
            nn.Linear(200, CLASSES),
        )  # fmt: skip
    if job.model == "fmnist_cnn":
        return nn.Sequential(
            nn.Conv2d(job.shape[0], 8, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32, 2048), nn.ReLU(), nn.Linear(2048, CLASSES),
        )  # fmt: skip
    return nn.Sequential(
        nn.Conv2d(job.shape[0], 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, CLASSES),
    )  # fmt: skip


def first_network(data: Data) -> nn.Module:
    """The job's network with the job's first weights."""
    network = build_network(data.job)
    set_weights(network, torch.from_numpy(data.init))
    return network


def set_weights(network: nn.Module, flat: Tensor) -> None:
    """Copies: the network must not train the vector it was given."""
    vector_to_parameters(flat.clone(), network.parameters())


def get_weights(network: nn.Module) -> Tensor:
    return parameters_to_vector(network.parameters()).detach()


def examples(data: Data, number: int, place: int) -> tuple[Tensor, Tensor]:
    """A client's examples and labels in the order it visits them in this round."""
    rows = data.ordered_rows(number, place)
    return torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])


def train(network: nn.Module, x: Tensor, y: Tensor, job: Job) -> None:
    """The local epochs with a fresh optimiser."""
    weights, change, optim = network.parameters(), _changes(job), torch.optim
    optimiser: torch.optim.Optimizer
    if job.adam:
        optimiser = optim.Adam(weights, lr=job.lr, weight_decay=job.weight_decay)
    else:
        optimiser = optim.SGD(weights, lr=job.lr, momentum=job.momentum, weight_decay=job.weight_decay)
    network.train()
    for _ in range(job.epochs):
        for images, labels in zip(x.split(job.batch), y.split(job.batch), strict=True):
            optimiser.zero_grad()
            F.cross_entropy(network(change(images)), labels).backward()
            optimiser.step()


def _changes(job: Job) -> Callable[[Tensor], Tensor]:
    """How a batch of images is changed; only jobs that no other framework runs change any."""
    if not job.augment:
        return lambda images: images
    from fedcohort.data.augment import Augment

    augment, draw = Augment(torch.zeros(1, 1, 1), torch.ones(1, 1, 1)), torch.Generator()
    return lambda images: augment(images, draw)


@torch.no_grad()
def accuracy(network: nn.Module, data: Data) -> float:
    """On the test set."""
    network.eval()
    x, y = torch.from_numpy(data.x_test), torch.from_numpy(data.y_test)
    hits = [(network(a).argmax(1) == b).sum() for a, b in zip(x.split(1000), y.split(1000), strict=True)]
    return int(sum(hits)) / len(y)
