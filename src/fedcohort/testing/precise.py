"""The reference engine in double precision: the judge where single precision makes much of a rounding.

Batches are the same, and so is what dropout keeps: PyTorch draws it alike for both.
"""

from dataclasses import replace

import torch
from torch import Tensor

from fedcohort.core.round.local_training import Descend, LocalSteps
from fedcohort.core.task import Task
from fedcohort.models.flat import Flat, Weights
from fedcohort.util.keyed import key_seed


class Precise(Flat):
    """The same network with first weights in double precision; whatever is made of them stays so."""

    def init(self, seed: int) -> Weights:
        return Weights(*(part.double() for part in super().init(seed)))


def precise(task: Task) -> Task:
    train = replace(task.data.train, x=task.data.train.x.double())
    return replace(task, model=Precise(task.model.build), federation=replace(task.data, train=train))


def taken(
    work: LocalSteps, descend: Descend, kind: torch.dtype = torch.float32
) -> tuple[Weights, Tensor | None]:
    """Where a client's steps lead in this precision, and the loss of each."""
    begun = work.begun()
    weights = Weights(begun.params.to(kind, copy=True), begun.buffers.to(kind, copy=True))
    with work.model.random_by(key_seed(*work.key, "dropout")):
        trace = descend(work._replace(x=work.x.to(kind)), weights)
    return weights, trace
