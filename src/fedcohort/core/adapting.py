"""Clients that train the model that serves them further before they use it: what each then has.

Whether and how they do is said by the method's :class:`~fedcohort.core.roles.adaptation.Adaptation`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedcohort.core import batchnorm, uploads
from fedcohort.core.deltas import Rows
from fedcohort.core.engine import Answer, Engine, Order, Served
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, LogitMap, Recall, View
from fedcohort.core.roles import Objective
from fedcohort.core.roles.optional import Freezes
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.models.flat import Flat, Weights


@dataclass(frozen=True, eq=False)
class Alone(Objective, Freezes):
    """What a client minimises for itself: the loss of its method's objective, and nothing that ties it to
    others."""

    loss: Objective
    fixed: Tensor | None  # [P] parameters that stay as they are

    @classmethod
    def of(cls, method: Method, model: Flat) -> "Alone":
        return cls(method.objective, method.adaptation.frozen(model))

    @property
    def affine(self) -> bool:
        return self.loss.affine and self.fixed is None

    def logits(self, view: View) -> LogitMap:
        return self.loss.logits(view)

    def criterion(self, logits: Tensor, labels: Tensor, view: View) -> Tensor:
        return self.loss.criterion(logits, labels, view)

    def frozen(self, model: Flat) -> Tensor | None:
        return self.fixed


def adapted(
    method: Method, state: State, task: Task, profile: Profile, engine: Engine, models: Sequence[Served]
) -> tuple[list[Served], Recall | None]:
    """The ``models`` as clients use them, and where these find BatchNorm statistics of their own: each
    client's own model where it makes one, else the one that serves it."""
    budget = method.adaptation.budget(task.local_at(state.round))
    if budget is None:
        return list(models), batchnorm.kept(task, state.clients)
    blank, able = uploads.blank(method, profile), set(profile.eligible.tolist())
    orders = [
        Order(client, model, state.clients.get(client, blank), budget)
        for model, members in models
        for client in members.tolist()
        if client in able
    ]
    own = engine.adapt(Alone.of(method, task.model), orders, state.round)
    here = {client: model for model, some in own for client in some.tolist() if "buffers" in model}
    kept = batchnorm.kept(task, here, state.clients)
    return [*own, *others(models, own)], kept


def others(models: Sequence[Served], own: Sequence[Served]) -> Iterator[Served]:
    """The ``models`` with those whom they still serve, once some clients have their ``own``."""
    gone = torch.cat([torch.zeros(0, dtype=torch.long), *(clients for _, clients in own)])
    for model, members in models:
        if len(left := members[~torch.isin(members, gone)]):
            yield model, left


def as_used(models: Sequence[Served], kept: Recall | None) -> Iterator[tuple[Weights, Ids]]:
    """Each model with whom it serves; one for each client where BatchNorm statistics are its own."""
    for model, members in models:
        weights = Weights(model["params"], model["buffers"])
        for some in [members] if kept is None else members[:, None]:
            yield batchnorm.worn(weights, None if kept is None else kept(int(some[0]))), some


def trained(orders: Sequence[Order], answers: Sequence[Answer]) -> list[Served]:
    """The model that each client arrived at; of who did not, or not at numbers, none."""
    told = [answer for answer in answers if not answer.refused]
    if not told:
        return []
    began = {order.client: order.down["params"] for order in orders}
    moves = Rows([answer.up["delta"] for answer in told]).tensor()  # at once: they may be elsewhere
    models = []
    for answer, move in zip(told, moves, strict=True):
        model = {"params": move.add_(began[answer.client]), "buffers": _statistics(answer)}
        if all(bool(each.isfinite().all()) for each in model.values()):
            models.append((model, torch.tensor([answer.client])))
    return models


def _statistics(answer: Answer) -> Tensor:
    """Of BatchNorm, as training left them; what a client keeps for itself is among what it remembers."""
    return answer.buffers if len(answer.buffers) else answer.mine.get("buffers", answer.buffers)
