"""The network that everybody trains, and a client's examples, in PyTorch."""

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from crosschecks.problem import Training

WIDTH = 16  # of the hidden layer


def build(features: int, classes: int, width: int = WIDTH) -> nn.Module:
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, classes))


def first_network(problem: Training) -> nn.Module:
    """The network with the problem's first weights."""
    network = build(problem.x.shape[1], int(problem.y.max()) + 1)
    vector_to_parameters(torch.from_numpy(problem.init).clone(), network.parameters())
    return network


def flat(network: nn.Module) -> Tensor:
    """All weights in a row."""
    return parameters_to_vector(network.parameters()).detach()


def examples(problem: Training, client: int) -> tuple[Tensor, Tensor]:
    own = problem.owner == client
    return torch.from_numpy(problem.x[own]), torch.from_numpy(problem.y[own])
