"""The reference engine: one client after the other, nothing clever. It is the judge of every faster
engine."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcohort.core.flat import Weights
from fedcohort.core.parts import Ids, Objective, View
from fedcohort.core.task import Task
from fedcohort.core.train import client_round
from fedcohort.data.federation import Split
from fedcohort.engines import Answer, Order

CHUNK = 4096  # examples evaluated at a time


class LoopEngine:
    """Trains and evaluates in this process."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.counts = task.federation.train.counts(task.federation.num_classes)

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        return [self._train_one(objective, order, number) for order in orders]

    def _train_one(self, objective: Objective, order: Order, number: int) -> Answer:
        task, train = self.task, self.task.federation.train
        rows = train.rows(order.client)
        view = View(order.down, order.mine, self.counts[order.client], len(rows), order.lr, order.steps)
        key = task.seed, number, order.client
        data = train.x, train.y
        up, mine, trained = client_round(objective, task.model, task.local, *data, view, *key, rows=rows)
        buffers, trace = trained.weights.buffers, trained.trace
        return Answer(order.client, up, mine, buffers, trace, trained.steps, trained.reach)

    def losses(self, weights: Weights, clients: Ids) -> Tensor:
        train = self.task.federation.train
        return torch.stack([self.predict(weights, train, train.rows(c))[0].mean() for c in clients.tolist()])

    def cross_accuracy(self, models: Sequence[Weights], clients: Ids) -> Tensor:
        held = self.task.federation.validation
        table = torch.zeros(len(models), len(clients))
        for row, weights in enumerate(models):
            for column, client in enumerate(clients.tolist()):
                rows = held.rows(client)
                table[row, column] = (self.predict(weights, held, rows)[1] == held.y[rows]).float().mean()
        return table

    @torch.no_grad()
    def predict(self, weights: Weights, split: Split, rows: Tensor) -> tuple[Tensor, Tensor]:
        losses, classes = [torch.zeros(0)], [torch.zeros(0, dtype=torch.long)]
        for chunk in rows.split(CHUNK):
            logits = self.task.model.logits(weights, split.x[chunk])
            losses.append(F.cross_entropy(logits, split.y[chunk], reduction="none"))
            classes.append(logits.argmax(1))
        return torch.cat(losses), torch.cat(classes)
