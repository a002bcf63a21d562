"""Engines decide where client work runs; every engine gives what the reference loop gives.

The round loop talks to an engine through :class:`Engine` and knows nothing of processes, devices or networks.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from fedcohort.core.flat import Weights
from fedcohort.core.parts import Ids, Memory, Merge, Objective
from fedcohort.core.task import Task
from fedcohort.data.federation import Split


class Order(NamedTuple):
    """What one client is asked to do in a round."""

    client: int
    down: Memory
    mine: Memory
    lr: float
    steps: int
    probes: frozenset[str] = frozenset()  # those of PROBES it shall tell
    quota: Tensor | None = None  # [C] samples of each class it may use; None: all


class Answer(NamedTuple):
    """What it did."""

    client: int
    up: Memory  # goes to the server
    mine: Memory  # stays with the client
    buffers: Tensor  # goes to the server
    trace: Tensor  # [T] loss of each step
    steps: int
    reach: float
    probes: Memory  # what was asked for; goes to the server


class Engine(Protocol):
    """Runs work at clients. Answers may be fewer than orders: a client may fail."""

    task: Task

    def merged(self, encoders: Sequence[Weights], plan: Merge) -> "Engine":
        """An engine of the same kind for the task of :func:`fedcohort.core.merge.merged_task`."""

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        """One round of local training, number ``number``."""

    def losses(self, weights: Weights, clients: Ids, samples: int | None = None, number: int = 0) -> Tensor:
        """Mean loss of one model on each client's training data, or on so many ``samples`` of it drawn for
        round ``number``; NaN where there is none."""

    def survey(self, models: Sequence[Weights], clients: Ids, answer: Callable[[Tensor], Tensor]) -> Tensor:
        """What each client answers to the loss ``[models, n]`` of each model on each of its training
        samples."""

    def cross_accuracy(self, models: Sequence[Weights], clients: Ids) -> Tensor:
        """``[models, clients]``: accuracy of each model on each client's validation data; NaN where there
        is none."""

    def predict(self, weights: Weights, split: Split, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and predicted class of one model for each of these rows of a split."""

    def predict_each(
        self, models: Sequence[tuple[Weights, Tensor]], split: Split
    ) -> list[tuple[Tensor, Tensor]]:
        """The same for many models, each with rows of its own."""
