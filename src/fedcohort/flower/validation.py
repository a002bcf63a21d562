"""What a proper answer looks like, so that anything else is refused before it is averaged."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.engine import Answer, Order, Scores
from fedcohort.core.method import Method
from fedcohort.core.optimiser import reach
from fedcohort.core.records import Memory, View
from fedcohort.core.schema import SLACK, Fields, by_class_fields, cross_fields, score_fields, training_fields
from fedcohort.core.tally import Tally
from fedcohort.core.trust import Trust, middle
from fedcohort.core.uploads import decoded
from fedcohort.data.federation import Federation
from fedcohort.data.revealed import Revealed
from fedcohort.flower.fields import read_facts, read_record
from fedcohort.flower.messages import NonsenseError, Payload

STEPS = 10**6  # of a round that the server counts up
MAJORITY = 3  # clients of whom one can be called odd


class ExpectedAnswer(NamedTuple):
    """The answer to one order: the fields of all it may hold, and the largest numbers that are possible.

    Its methods raise NonsenseError for an answer that is not what was asked for.
    """

    order: Order
    size: int  # samples the client has
    update: Fields
    classes: int
    at_once: bool  # the update comes with the rest
    method: Method
    blank: Memory  # what a client that never trained remembers
    trust: Trust

    def read(self, payload: Payload) -> Answer:
        told = read_facts(payload, self._numbers(0))
        most = self.order.budget.steps_for(told["size"])
        if told["steps"] not in (0, most) or most > STEPS:
            raise NonsenseError(f"it says that it took other than the {most} steps that it was to take")
        fields = self._numbers(told["steps"])
        probes = read_record(payload, "probes", fields)
        if "outputs" in probes and abs(float(probes["outputs"].sum()) - 1) > SLACK:
            raise NonsenseError("its mean outputs are no probabilities")
        answer = self.nothing()._replace(
            trace=read_record(payload, "trace", fields)["trace"],
            steps=told["steps"],
            reach=self._reach(told["steps"], told["size"]),
            probes=probes,
            size=told["size"],
        )
        return self.complete(answer, payload) if self.at_once else answer

    def _numbers(self, steps: int) -> Fields:
        sizes = self.size if self.order.quota is None else 1, self.size
        return training_fields(self.method, self.classes, steps, self.order.probes, sizes, self.trust)

    def complete(self, answer: Answer, payload: Payload) -> Answer:
        """The same answer with its update."""
        update = read_record(payload, "update", self.update)
        up, params = {key: update[key] for key in update if key != "buffers"}, self.order.down["params"]
        try:
            up = decoded(self.order.transforms, up, len(params))
        except ValueError:
            raise NonsenseError("its update is not written as it must be") from None
        return answer._replace(up=up, buffers=update["buffers"])

    def nothing(self, why: str = "") -> Answer:
        """An answer without content: if ``why`` is given, one that is refused."""
        return Answer(self.order.client, {}, {}, torch.zeros(0), torch.zeros(0), 1, 1.0, {}, 0, why)

    def _reach(self, steps: int, size: int) -> float:
        """How far these steps could go: computed here, not believed."""
        order, counts = self.order, torch.ones(self.classes)
        view = View(order.down, self.blank, counts, size, order.budget.lr, steps)
        return reach(order.budget, order.budget.lr, steps, self.method.objective.anchor(view).pull)


Norms = dict[str, dict[int, float]]  # by tensor and client


def outsized(sent: Mapping[int, Memory], trust: Trust, known: Norms, model: float) -> dict[int, str]:
    """By client, what is wrong with those that sent a tensor much longer than most did.

    One or two have no majority: then the last ones that were believed of others, which are ``known``, count
    too. Where even these are too few, the measure is the ``model`` that the run began with, or 1 if that is
    more: nobody chose it.
    """
    found: dict[int, str] = {}
    for key in next(iter(sent.values()), {}):
        norms = {
            client: float(torch.linalg.vector_norm(memory[key], dtype=torch.float64))
            for client, memory in sent.items()
        }
        before = known.setdefault(key, {})
        among = norms if len(norms) >= MAJORITY else {**before, **norms}
        usual = middle(among.values()) if len(among) >= MAJORITY else 0.0
        most, of = trust.max_update_ratio * (usual or max(model, 1.0)), "that of most" if usual else "a model"
        words = f"is refused: its {key} is more than {trust.max_update_ratio:g} times as large as {of}"
        found |= {client: f"{words} (trust.max_update_ratio)" for client in norms if norms[client] > most}
        before |= {client: norm for client, norm in norms.items() if norm <= most}
    return found


def incredible(told: Mapping[int, float], classes: int, trust: Trust) -> dict[int, str]:
    """By client, what is wrong with losses far above those of most, by which they would be chosen or weighed
    before all others. The median is the lower one, so that one of two does not set it; a model that only
    guesses is the least measure, because a client that nobody resembles may well lose much more than most."""
    losses = sorted(loss for loss in told.values() if not math.isnan(loss))
    usual = losses[(len(losses) - 1) // 2] if losses else 0.0
    most = trust.max_loss_ratio * max(usual, math.log(max(classes, 2)))
    words = f"is refused: its loss is more than {trust.max_loss_ratio:g} times that of most, or of guessing"
    return {client: f"{words} (trust.max_loss_ratio)" for client, loss in told.items() if loss > most}


def read_loss(payload: Payload, fields: Fields) -> float:
    """NaN where a client has none."""
    (loss,) = read_facts(payload, fields).values()
    return float(loss)


def read_answer(payload: Payload, fields: Fields) -> Tensor:
    """The answer to a survey."""
    answer = read_record(payload, "answer", fields)["answer"]
    if answer.dim() and not answer.is_floating_point() and not bool(answer.any()):
        raise NonsenseError("by its answer none of its samples fits any model")
    return answer


def read_accuracy(payload: Payload, models: int) -> Tensor:
    """Of each model; NaN where a client has nothing to try them on."""
    accuracy = read_record(payload, "accuracy", cross_fields(models))["accuracy"]
    if bool(accuracy.isnan().any()) and not bool(accuracy.isnan().all()):
        raise NonsenseError("it knows the accuracy of some models only")
    return accuracy


class Score(NamedTuple):
    """How one client's test samples were answered."""

    size: int
    right: int
    loss: float  # summed
    by_class: Memory  # "answers" and, of two classes, "odds"; empty where they are not told


def read_score(payload: Payload, size: int, classes: int, trust: Trust) -> Score:
    told, by_class = read_facts(payload, score_fields((size, size), trust)), {}
    if payload.tensors.get("by_class"):
        by_class = read_record(payload, "by_class", by_class_fields(classes, size))
        _check_classes(by_class, size, told["right"])
    return Score(size, told["right"], float(told["loss"]), by_class)


def all_scores(told: Mapping[int, Score], federation: Federation | Revealed) -> Scores:
    """Of all clients; who told nothing counts as without test samples."""
    clients = federation.num_clients
    size, right, loss = (np.zeros(clients, dtype=kind) for kind in (np.int64, np.float32, np.float64))
    for client, score in told.items():
        size[client], right[client], loss[client] = score[:3]
    if not told or not all(score.by_class for score in told.values()):
        return Scores(size, right, loss, None)
    return Scores(size, right, loss, Tally.joined([Tally.told(c, own.by_class) for c, own in told.items()]))


def _check_classes(tables: Mapping[str, Tensor], size: int, right: int) -> None:
    """Whether the numbers of each class make those of all."""
    answers = tables["answers"]
    of_class, odds = answers.sum(1), tables["odds"].sum(1) if "odds" in tables else None
    sums = int(answers.sum()), int(answers.diagonal().sum())
    if sums != (size, right) or (odds is not None and not torch.equal(odds, of_class)):
        raise NonsenseError("what it says of each class does not add up")
