"""What a proper answer looks like, so that anything else is refused before it is averaged."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.engine import Answer, Order, Scores
from fedcohort.core.method import Method
from fedcohort.core.optimiser import reach
from fedcohort.core.records import Memory, View
from fedcohort.core.roles import Objective
from fedcohort.core.schema import (
    Field,
    Fields,
    by_class_fields,
    cross_fields,
    fields_of,
    training_fields,
    update_fields,
)
from fedcohort.core.trust import Trust, middle
from fedcohort.core.uploads import decoded
from fedcohort.data.federation import Federation
from fedcohort.data.revealed import Revealed
from fedcohort.flower.messages import NonsenseError, Payload
from fedcohort.models.flat import Weights
from fedcohort.runs.client_messages import still

SLACK = 1e-3  # by which probabilities may miss 1 in all
STEPS = 10**6  # of a round that the server counts up
MAJORITY = 3  # clients of whom one can be called odd


def expected_update(objective: Objective, blank: Memory, order: Order) -> Fields:
    """What goes up: that of a client that did not move."""
    at = Weights(order.down["params"], order.down["buffers"])
    view = View(order.down, blank, torch.ones(1), 1, order.budget.lr, 1)
    up, _ = objective.finish(at, still(at), view)
    return update_fields(order.transforms, up, at.buffers)


class Expected(NamedTuple):
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
        steps, size = self._numbers(payload.facts)
        fields = training_fields(self.method, self.classes, steps, self.order.probes)
        trace = _fitting(payload, "trace", fields, "its losses")["trace"]
        answer = self.nothing()._replace(
            trace=_losses(trace, self.trust),
            steps=steps,
            reach=self._reach(steps, size),
            probes=self._probes(payload, fields),
            size=size,
        )
        return self.complete(answer, payload) if self.at_once else answer

    def complete(self, answer: Answer, payload: Payload) -> Answer:
        """The same answer with its update."""
        update = _finite(_fitting(payload, "update", self.update, "its update"), "its update")
        up, params = {key: update[key] for key in update if key != "buffers"}, self.order.down["params"]
        try:
            up = decoded(self.order.transforms, up, len(params))
        except ValueError:
            raise NonsenseError("its update is not written as it must be") from None
        return answer._replace(up=up, buffers=update["buffers"])

    def nothing(self, why: str = "") -> Answer:
        """An answer without content: if ``why`` is given, one that is refused."""
        return Answer(self.order.client, {}, {}, torch.zeros(0), torch.zeros(0), 1, 1.0, {}, 0, why)

    def _numbers(self, facts: Mapping[str, Any]) -> tuple[int, int]:
        steps, size = facts.get("steps"), facts.get("size")
        least = self.size if self.order.quota is None else 1
        if type(size) is not int or not least <= size <= self.size:
            raise NonsenseError(f"it says that it trained on other than its {self.size} samples")
        most = self.order.budget.steps_for(size)
        if type(steps) is not int or steps not in (0, most) or steps > STEPS:
            raise NonsenseError(f"it says that it took other than the {most} steps that it was to take")
        return steps, size

    def _reach(self, steps: int, size: int) -> float:
        """How far these steps could go: computed here, not believed."""
        order, counts = self.order, torch.ones(self.classes)
        view = View(order.down, self.blank, counts, size, order.budget.lr, steps)
        return reach(order.budget, order.budget.lr, steps, self.method.objective.anchor(view).pull)

    def _probes(self, payload: Payload, fields: Fields) -> Memory:
        asked = "what it was asked beside"
        probes = _finite(_fitting(payload, "probes", fields, asked), asked)
        _losses(probes.get("loss_before", torch.zeros(0)), self.trust)
        outputs = probes.get("outputs", torch.ones(1))
        if bool((outputs < 0).any()) or abs(float(outputs.sum()) - 1) > SLACK:
            raise NonsenseError("its mean outputs are no probabilities")
        return probes


def _losses(told: Tensor, trust: Trust) -> Tensor:
    if not bool(((told >= 0) & (told <= trust.max_loss)).all()):
        raise NonsenseError(f"a loss is not between 0 and {trust.max_loss:g} (trust.max_loss)")
    return told


def _fitting(payload: Payload, record: str, fields: Sequence[Field], what: str) -> Memory:
    """A record that holds these fields and nothing else."""
    memory, own = payload.tensors.get(record, {}), [field for field in fields if field.record == record]
    if memory.keys() != {field.name for field in own}:
        raise NonsenseError(f"{what} does not hold {', '.join(field.name for field in own) or 'nothing'}")
    if any(memory[f.name].shape != f.shape or memory[f.name].dtype != f.dtype for f in own):
        raise NonsenseError(f"{what} has the wrong shape")
    return memory


def _finite(memory: Memory, what: str) -> Memory:
    if not all(bool(value.isfinite().all()) for value in memory.values()):
        raise NonsenseError(f"{what} is not a number")
    return memory


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


def told_loss(payload: Payload, name: str, trust: Trust) -> float:
    """NaN where a client has none."""
    value = payload.facts.get(name)
    if isinstance(value, float) and math.isnan(value):
        return value
    if not isinstance(value, int | float) or not 0 <= value <= trust.max_loss:
        raise NonsenseError(f"its loss is not between 0 and {trust.max_loss:g} (trust.max_loss)")
    return float(value)


def told_answer(payload: Payload, pattern: Tensor, most: int, trust: Trust) -> Tensor:
    """The answer to a survey, like ``pattern``: a number or counts from 0 to ``most``, or losses."""
    fields = fields_of("answer", {"answer": pattern})
    said = _fitting(payload, "answer", fields, "its answer about the models")["answer"]
    if said.is_floating_point():
        fits = bool((said.abs() <= trust.max_loss).all())
    else:
        fits = bool(((said >= 0) & (said <= most)).all()) and (not said.dim() or bool(said.any()))
    if not fits:
        raise NonsenseError("its answer about the models is impossible")
    return said


def told_accuracy(payload: Payload, models: int) -> Tensor:
    """Of each model; NaN where a client has nothing to try them on."""
    said = _fitting(payload, "accuracy", cross_fields(models), "what it says of models")["accuracy"]
    if not said.isnan().all() and not bool(((said >= 0) & (said <= 1)).all()):
        raise NonsenseError("an accuracy is not between 0 and 1")
    return said


def told_memory(payload: Payload, blank: Memory) -> Memory:
    """What a client remembers, which looks like ``blank``."""
    return _finite(_fitting(payload, "memory", fields_of("memory", blank), "its memory"), "its memory")


class Score(NamedTuple):
    """How one client's test samples were answered."""

    size: int
    right: int
    loss: float  # summed
    by_class: Memory  # "size" and "right"; empty where they are not told


def told_score(payload: Payload, size: int, classes: int, trust: Trust) -> Score:
    said, by_class = payload.facts, payload.tensors.get("by_class", {})
    right, loss = said.get("right"), said.get("loss")
    if type(said.get("size")) is not int or said["size"] != size:
        raise NonsenseError(f"it says that it tested on other than its {size} samples")
    if type(right) is not int or not 0 <= right <= size:
        raise NonsenseError("it says that more than all or less than none of its answers are right")
    if not isinstance(loss, int | float) or not 0 <= loss <= trust.max_loss * size:
        raise NonsenseError(f"its loss is not between 0 and {trust.max_loss:g} a sample (trust.max_loss)")
    if by_class:
        _fitting(payload, "by_class", by_class_fields(classes), "what it says of each class")
    if by_class and not _adds_up(by_class, size, right):
        raise NonsenseError("what it says of each class does not add up")
    return Score(size, right, float(loss), by_class)


def all_scores(told: Mapping[int, Score], federation: Federation | Revealed) -> Scores:
    """Of all clients; who told nothing counts as without test samples."""
    clients, classes = federation.num_clients, federation.num_classes
    size, right, loss = (np.zeros(clients, dtype=kind) for kind in (np.int64, np.float32, np.float64))
    total, correct = torch.zeros(clients, classes, dtype=torch.long), torch.zeros(clients, classes)
    for client, score in told.items():
        size[client], right[client], loss[client] = score[:3]
        if score.by_class:
            total[client], correct[client] = score.by_class["size"], score.by_class["right"].float()
    by_class = bool(told) and all(score.by_class for score in told.values())
    return Scores(size, right, loss, (total.numpy(), correct.numpy()) if by_class else None)


def _adds_up(rows: Mapping[str, Tensor], size: int, right: int) -> bool:
    """Whether the numbers of each class make those of all."""
    fits = bool(((rows["right"] >= 0) & (rows["right"] <= rows["size"]) & (rows["size"] <= size)).all())
    return fits and (int(rows["size"].sum()), int(rows["right"].sum())) == (size, right)
