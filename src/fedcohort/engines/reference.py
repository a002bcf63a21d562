"""The reference engine: one client after the other, nothing clever. It is the judge of every faster
engine."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcohort.core.adapting import trained
from fedcohort.core.batchnorm import worn
from fedcohort.core.engine import Ahead, Answer, ModelTrial, Order, Samples, Scores, Served
from fedcohort.core.records import Ids, Memory, Merge, Recall, View
from fedcohort.core.roles import Objective
from fedcohort.core.round.local_training import Descend, LocalSteps, client_round, prepare
from fedcohort.core.round.merge import merged_task
from fedcohort.core.tally import Tally
from fedcohort.core.task import Task
from fedcohort.core.uploads import transformed
from fedcohort.data.federation import Split, take
from fedcohort.models.flat import Flat, Weights

CHUNK = 4096  # examples copied at a time


class Predicted(NamedTuple):
    """What a model says of some rows."""

    loss: Tensor
    said: Tensor  # the class
    log_odds: Tensor  # of the last class against the first

    @classmethod
    def joined(cls, pieces: "Iterable[Predicted]") -> "Predicted":
        """In this order; of no pieces, nothing."""
        number = torch.zeros(0)
        told = list(pieces) or [cls(number, number.long(), number)]
        return cls(*map(torch.cat, zip(*told, strict=True)))


class ReferenceEngine:
    """Trains and evaluates in this process."""

    messages = 0
    cap = math.inf  # of the loss of one example that is evaluated

    def __init__(self, task: Task) -> None:
        self.task = task
        self.keeps = task.local.keeps_statistics(task.model)  # nobody sends statistics
        self._merged: tuple[Sequence[Weights], ReferenceEngine] | None = None

    def merged(self, encoders: Sequence[Weights], plan: Merge) -> "ReferenceEngine":
        if self._merged is None or self._merged[0] is not encoders:  # encoding all examples takes a while
            self._merged = encoders, type(self)(merged_task(self.task, encoders, plan))
        return self._merged[1]

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        able = [order for order in orders if self.size(order)]
        return [self.train_one(order, self.job(objective, order, number)) for order in able]

    def adapt(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Served]:
        return trained(orders, self.train(objective, orders, number))

    def collect(self, answers: Sequence[Answer], number: int) -> list[Answer]:
        return list(answers)

    def size(self, order: Order) -> int:
        """How many samples the client trains on."""
        return self.task.data.client(order.client).size(order.quota)

    def view(self, order: Order) -> View:
        """What the client sees."""
        own, budget = self.task.data.client(order.client), order.budget
        size, samples = own.size(order.quota), own.samples(order.quota)
        return View(order.down, order.mine, samples, size, budget.lr, budget.steps_for(size))

    def probe(self, order: Order, rows: Tensor, trained: Weights, model: Flat) -> Memory:
        """What it tells beside its update, about the rows it trained on."""
        train, found = self.task.data.train, {}
        if "loss_before" in order.probes:
            sent = Weights(order.down["params"], order.down["buffers"])
            sent = worn(sent, order.mine if self.keeps else None)
            found["loss_before"] = predict(partial(model.answers, sent), train, rows, self.cap).loss.mean()
        if "outputs" in order.probes:
            found["outputs"] = mean_output(model, trained, train, rows)
        return found

    def job(self, objective: Objective, order: Order, number: int) -> LocalSteps:
        """The client's local steps in this round."""
        task, train = self.task, self.task.data.train
        own = task.data.client(order.client)
        key = task.seed, number, own.number
        view, rows = self.view(order), own.rows(task.seed, order.quota)
        return prepare(objective, task.model, task.local, train.x, train.y, view, key, rows, task.augment)

    def train_one(self, order: Order, job: LocalSteps, descend: Descend | None = None) -> Answer:
        """One client's round, perhaps with a faster way to take the steps."""
        up, mine, trained = client_round(job, descend)
        up, mine = transformed(order.transforms, up, mine, job.view)
        assert job.rows is not None  # noqa: S101  # this engine's jobs have them
        probes = self.probe(order, job.rows, trained.weights, job.model)
        buffers, trace = torch.zeros(0) if self.keeps else trained.weights.buffers, trained.trace
        size = job.view.size
        return Answer(order.client, up, mine, buffers, trace, trained.steps, trained.reach, probes, size)

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        train, rows = self.task.data.train, self.polled_rows(trial.clients, samples, number)
        models = [trial.at(client)[0] for client in trial.clients.tolist()]
        tried = self.predict_each(list(zip(models, rows, strict=True)), train)
        return torch.stack([own.loss.mean() for own in tried])

    def polled_rows(self, clients: Ids, samples: int | None, number: int) -> list[Tensor]:
        """The rows on which each client measures a loss: all, or ``samples`` drawn for this round."""
        everybody = map(self.task.data.client, clients.tolist())
        return [own.polled(self.task.seed, number, samples) for own in everybody]

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        train = self.task.data.train
        told = []
        for client in trial.clients.tolist():
            asked = [(model, train.rows(client)) for model in trial.at(client)]
            told.append(answer(torch.stack([own.loss for own in self.predict_each(asked, train)])))
        return trial.clients, torch.stack(told)

    def cross_accuracy(self, trial: ModelTrial) -> Tensor:
        held = self.task.data.validation
        table = torch.zeros(len(trial.models), len(trial.clients))
        for column, client in enumerate(trial.clients.tolist()):
            rows = held.rows(client)
            asked = [(model, rows) for model in trial.at(client)]
            for row, own in enumerate(self.predict_each(asked, held)):
                table[row, column] = (own.said == held.y[rows]).float().mean()
        return table

    def predict(self, weights: Weights, split: Split, rows: Tensor) -> Predicted:
        """What one model says of each of these rows of a split."""
        return predict(partial(self.task.model.answers, weights), split, rows, self.cap)

    def predict_each(self, models: Sequence[tuple[Weights, Tensor]], split: Split) -> list[Predicted]:
        """The same for many models, each with rows of its own."""
        return [self.predict(weights, split, rows) for weights, rows in models]

    def score(
        self,
        models: Sequence[Served],
        ahead: Ahead | None = None,
        kept: Recall | None = None,
        on: Samples = "test",
    ) -> Scores:
        federation = self.task.data
        held = federation.validation if on == "validation" else federation.test
        if kept is not None:
            models = [
                ({**model, "buffers": kept(int(client))["buffers"]}, client[None])
                for model, members in models
                for client in members
            ]
        served = [[held.rows(client) for client in members.tolist()] for _, members in models]
        asked = [
            (Weights(model["params"], model["buffers"]), torch.cat(rows))
            for (model, _), rows in zip(models, served, strict=True)
        ]
        told, rows = Predicted.joined(self.predict_each(asked, held)), _joined([rows for _, rows in asked])
        each = torch.tensor([len(few) for own in served for few in own], dtype=torch.long)
        owner, label = _joined([members for _, members in models]).repeat_interleave(each), held.y[rows]
        right = torch.bincount(owner, (told.said == label).float(), federation.num_clients)
        loss = torch.bincount(owner, told.loss.double(), federation.num_clients)
        tally = Tally.of(owner, label, told.said, told.log_odds, federation.num_classes)
        return Scores(held.sizes.numpy(), right.numpy(), loss.numpy(), tally)


@torch.no_grad()
def predict(
    answers: Callable[[Tensor], Tensor], split: Split, rows: Tensor, cap: float = math.inf
) -> Predicted:
    """What a model says of these rows, a few thousand at a time; its ``answers`` to examples are logits."""
    told = []
    for chunk in rows.split(CHUNK) if len(rows) else ():  # many networks cannot reshape an empty batch
        logits = answers(take(split.x, chunk))
        loss = F.cross_entropy(logits, split.y[chunk], reduction="none").clamp(max=cap)
        told.append(Predicted(loss, logits.argmax(1), logits[:, -1] - logits[:, 0]))
    return Predicted.joined(told)


@torch.no_grad()
def mean_output(model: Flat, weights: Weights, split: Split, rows: Tensor) -> Tensor:
    """[C]: the class probabilities that a model gives these rows, on average."""
    total = torch.stack(
        [model.answers(weights, split.x[chunk]).softmax(1).sum(0) for chunk in rows.split(CHUNK)]
    )
    return total.sum(0) / len(rows)


def _joined(ids: Sequence[Tensor]) -> Tensor:
    return torch.cat([torch.zeros(0, dtype=torch.long), *ids])
