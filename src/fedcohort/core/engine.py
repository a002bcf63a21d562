"""Engines decide where client work runs; every engine gives what the reference loop gives.

The round loop talks to an engine through :class:`Engine` and knows nothing of processes, devices or networks.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from torch import Tensor

from fedcohort.core.batchnorm import worn
from fedcohort.core.profile import Local
from fedcohort.core.records import Ids, Memory, Merge, Recall
from fedcohort.core.roles import Objective, Transform
from fedcohort.core.tally import Tally
from fedcohort.core.task import Task
from fedcohort.models.flat import Weights

Samples = Literal["validation", "test"]  # by which models are scored
Served = tuple[Memory, Ids]  # a model ("params", "buffers") and the clients that it serves


class Order(NamedTuple):
    """What one client is asked to do in a round."""

    client: int
    down: Memory
    mine: Memory
    budget: Local  # with this round's learning rate; the client knows how many steps that makes
    probes: frozenset[str] = frozenset()  # those of PROBES it is to tell
    quota: Tensor | None = None  # [C] samples of each class it may use, if it has them; None: all
    judged: bool = False  # its update is not wanted before `Engine.collect`
    transforms: tuple[Transform, ...] = ()  # what its update goes through at the client
    spare: int | None = None  # the version of what it remembered after the best round so far, to be kept


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
    size: int  # samples it trained on
    refused: str = ""  # why the answer cannot be used; empty: it can


class Ahead(NamedTuple):
    """Orders of the next round, known before this one is evaluated."""

    number: int  # of that round
    orders: Sequence[Order]


class Scores(NamedTuple):
    """How models did on clients' test or validation samples. Clients that did not answer have none."""

    size: np.ndarray  # [K]
    right: np.ndarray  # [K] correct answers
    loss: np.ndarray  # [K] summed
    tally: Tally | None  # which classes they were of, and were called; None: not told

    @property
    def accuracy(self) -> np.ndarray:
        """[K]; NaN for clients without samples."""
        nothing = np.full(len(self.size), np.nan)
        return np.divide(self.right, self.size, out=nothing, where=self.size > 0)


class ModelTrial(NamedTuple):
    """Models that clients try on their own data."""

    models: Sequence[Weights]
    clients: Ids
    kept: Recall | None = None  # where clients find BatchNorm statistics of their own; None: the models'

    def at(self, client: int) -> list[Weights]:
        """The models as this client uses them."""
        return [worn(model, self.kept and self.kept(client)) for model in self.models]


class Engine(Protocol):
    """Runs work at clients. Answers may be fewer than orders: a client may fail."""

    task: Task

    @property
    def messages(self) -> int:
        """Sent to clients so far; 0 for ever where clients are simulated."""

    def merged(self, encoders: Sequence[Weights], plan: Merge) -> "Engine":
        """An engine of the same kind for the task of :func:`fedcohort.core.round.merge.merged_task`."""

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        """One round of local training, number ``number``. A client without samples gives no answer."""

    def adapt(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Served]:
        """The model of each client that trains for itself, as ordered, and sends nothing. Who has no samples
        or does not arrive at numbers has none. Elsewhere it is made when it is scored, and stays there."""

    def collect(self, answers: Sequence[Answer], number: int) -> list[Answer]:
        """Judged answers of this round, complete with their updates; again they may be fewer."""

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        """Mean loss of the one model on each client's training data, or on this many ``samples`` of it drawn
        for round ``number``; NaN where there is none."""

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        """Who answered, and what: ``answer`` of the loss ``[models, n]`` of each model on each
        of its training samples."""

    def cross_accuracy(self, trial: ModelTrial) -> Tensor:
        """``[models, clients]``: accuracy of each model on each client's validation data; NaN where there
        is none."""

    def score(
        self,
        models: Sequence[Served],
        ahead: Ahead | None = None,
        kept: Recall | None = None,
        on: Samples = "test",
    ) -> Scores:
        """Every client's own samples of that kind, answered by the model that serves it, with statistics as
        in a :class:`ModelTrial`. Who is named in ``ahead`` may hear of its next order in the same message."""
