"""Engines decide where client work runs; every engine gives what the reference loop gives.

The round loop talks to an engine through :class:`Engine` and knows nothing of processes, devices or networks.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from fedcohort.core.flat import Weights
from fedcohort.core.parts import Ids, Memory, Objective
from fedcohort.data.federation import Split


class Order(NamedTuple):
    """What one client is asked to do in a round."""

    client: int
    down: Memory
    mine: Memory
    lr: float
    steps: int


class Answer(NamedTuple):
    """What it did."""

    client: int
    up: Memory  # goes to the server
    mine: Memory  # stays with the client
    buffers: Tensor  # goes to the server
    trace: Tensor  # [T] loss of each step
    steps: int
    reach: float


class Engine(Protocol):
    """Runs work at clients. Answers may be fewer than orders: a client may fail."""

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        """One round of local training, number ``number``."""

    def losses(self, weights: Weights, clients: Ids) -> Tensor:
        """Mean loss of one model on each client's training data; NaN where there is none."""

    def cross_accuracy(self, models: Sequence[Weights], clients: Ids) -> Tensor:
        """``[models, clients]``: accuracy of each model on each client's validation data; NaN where there
        is none."""

    def predict(self, weights: Weights, split: Split, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and predicted class of one model for each of these rows of a split."""
