"""Trouble for the contract's laws: engines whose clients misbehave, and federations with odd clients."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from fedcohort.core.engine import Answer, ModelTrial, Order
from fedcohort.core.records import Ids
from fedcohort.core.roles import Objective
from fedcohort.core.task import Task
from fedcohort.data import Split
from fedcohort.engines.reference import ReferenceEngine


class Backwards(ReferenceEngine):
    """Clients work and answer in reverse order."""

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        return super().train(objective, list(reversed(orders)), number)


class OneBreaks(ReferenceEngine):
    """The first client of each cohort answers with NaN."""

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        answers = super().train(objective, orders, number)
        broken = {key: torch.full_like(value, torch.nan) for key, value in answers[0].up.items()}
        return [answers[0]._replace(up=broken), *answers[1:]]


class NobodyTells(ReferenceEngine):
    """Asked for a loss, clients have none that is a number."""

    known: ClassVar[int] = 0  # how many have one after all

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        found = super().losses(trial, samples, number)
        return torch.where(torch.arange(len(found)) < self.known, found, torch.nan)

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        return super().survey(trial, lambda losses: answer(torch.full_like(losses, torch.nan)))


class OneTells(NobodyTells):
    """The same, but for the first who is polled."""

    known: ClassVar[int] = 1


def with_rows(task: Task, rows: Callable[[int, Tensor], Tensor]) -> Task:
    """The task in which a client trains on what ``rows(client, its rows)`` leaves of its data."""
    federation, train = task.data, task.data.train
    kept = [rows(client, train.rows(client)) for client in range(federation.num_clients)]
    return replace(task, federation=replace(federation, train=Split.of(train.x, train.y, kept)))


def with_sizes(task: Task, sizes: dict[int, int]) -> Task:
    """These clients have this many training samples."""
    return with_rows(task, lambda client, rows: rows[: sizes.get(client, len(rows))])


def with_one_class(task: Task, clients: int) -> Task:
    """The first ``clients`` clients hold a single class each."""
    y = task.data.train.y
    return with_rows(task, lambda client, rows: rows if client >= clients else rows[y[rows] == y[rows[0]]])
