"""What a proper answer looks like, so that anything else is refused before it is averaged."""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.engine import Answer, Order, Scores
from fedcohort.core.flat import Weights
from fedcohort.core.parts import Memory, Objective, View
from fedcohort.data.federation import Federation
from fedcohort.flower.wire import Letter
from fedcohort.leaving import still

Shapes = dict[str, torch.Size]


def update_shapes(objective: Objective, blank: Memory, order: Order) -> Shapes:
    """Of what goes up: that of a client that did not move."""
    at = Weights(order.down["params"], order.down["buffers"])
    view = View(order.down, blank, torch.ones(1), 1, order.budget.lr, 1)
    up, _ = objective.finish(at, still(at), view)
    return {**{key: value.shape for key, value in up.items()}, "buffers": at.buffers.shape}


class Expected(NamedTuple):
    """The answer to one order: the shapes of all it may hold, and the largest numbers that are possible."""

    order: Order
    size: int  # samples the client has
    update: Shapes
    classes: int
    at_once: bool  # the update comes with the rest

    def read(self, letter: Letter) -> Answer:
        """The answer; refused if it is not what was asked for."""
        try:
            steps, size, reach = self._numbers(letter.facts)
            trace = letter.tensors.get("trace", {}).get("trace", torch.zeros(0))
            if trace.dim() != 1 or len(trace) not in (1, steps) or not trace.is_floating_point():
                raise ValueError("its losses have the wrong shape")
            known = {"loss_before": torch.Size([]), "outputs": torch.Size([self.classes])}
            asked = {key: known[key] for key in self.order.probes}
            probes = _shaped(letter.tensors.get("probes", {}), asked, "what it was asked beside")
            answer = self.nothing()._replace(trace=trace, steps=steps, reach=reach, probes=probes, size=size)
            return self._complete(answer, letter) if self.at_once else answer
        except ValueError as error:
            return self.nothing(str(error))

    def complete(self, answer: Answer, letter: Letter) -> Answer:
        """The same answer with the update that was not wanted before."""
        try:
            return self._complete(answer, letter)
        except ValueError as error:
            return self.nothing(str(error))

    def nothing(self, why: str = "") -> Answer:
        """An answer without content: if ``why`` is given, one that is refused."""
        return Answer(self.order.client, {}, {}, torch.zeros(0), torch.zeros(0), 1, 1.0, {}, 0, why)

    def _complete(self, answer: Answer, letter: Letter) -> Answer:
        update = _shaped(letter.tensors.get("update", {}), self.update, "its update")
        return answer._replace(
            up={k: v for k, v in update.items() if k != "buffers"}, buffers=update["buffers"]
        )

    def _numbers(self, facts: Mapping[str, Any]) -> tuple[int, int, float]:
        steps, size, reach = facts.get("steps"), facts.get("size"), facts.get("reach")
        if type(size) is not int or not 1 <= size <= self.size:
            raise ValueError(f"it says that it trained on other than its {self.size} samples")
        if type(steps) is not int or not 0 <= steps <= self.order.budget.steps_for(size):
            raise ValueError("it took more steps than it was allowed")
        if not isinstance(reach, float) or not 0 <= reach < float("inf"):
            raise ValueError("the length of its steps is not a number")
        return steps, size, reach


def _shaped(memory: Memory, shapes: Shapes, what: str) -> Memory:
    if memory.keys() != shapes.keys():
        raise ValueError(f"{what} holds {', '.join(sorted(memory)[:5]) or 'nothing'}")
    for key, value in memory.items():
        if value.shape != shapes[key] or value.dtype != torch.float32:
            raise ValueError(f"{what} has the wrong shape")
        if not bool(value.isfinite().all()):
            raise ValueError(f"{what} is not a number")
    return memory


def told_number(letter: Letter, name: str) -> float:
    """NaN for what is none."""
    value = letter.facts.get(name)
    return float(value) if isinstance(value, int | float) else float("nan")


def told_answer(letter: Letter, pattern: Tensor, most: int) -> Tensor:
    """The answer to a survey: like ``pattern``; whole numbers run from 0 to ``most``."""
    said = letter.tensors.get("answer", {}).get("answer")
    if said is None or said.shape != pattern.shape or said.dtype != pattern.dtype:
        raise ValueError("its answer about the models has the wrong shape")
    if not bool(said.isfinite().all()) or (
        not said.is_floating_point() and not 0 <= said.min() <= said.max() <= most
    ):
        raise ValueError("its answer about the models is impossible")
    return said


def told_accuracy(letter: Letter, models: int) -> Tensor:
    """Of each model; NaN if it makes no sense."""
    said = letter.tensors.get("accuracy", {}).get("accuracy")
    proper = said is not None and said.shape == (models,) and bool(((said >= 0) & (said <= 1)).all())
    return said if said is not None and proper else torch.full((models,), torch.nan)


def told_memory(letter: Letter, blank: Memory) -> Memory:
    """What a client remembers; ``blank`` if it sends something else."""
    try:
        return _shaped(letter.tensors.get("memory", {}), {k: v.shape for k, v in blank.items()}, "its memory")
    except ValueError:
        return blank


def told_scores(replies: Mapping[int, Letter], federation: Federation) -> Scores:
    """What clients told of their test data; those that told nothing sensible count as without any."""
    clients, classes = federation.num_clients, federation.num_classes
    size, right, loss = (np.zeros(clients, dtype=kind) for kind in (np.int64, np.float32, np.float64))
    total, correct = torch.zeros(clients, classes, dtype=torch.long), torch.zeros(clients, classes)
    by_class = bool(replies)
    for client, letter in replies.items():
        said, test = letter.facts, int(federation.test.sizes[client])
        if said.get("size") != test or not _is_between(said.get("right"), 0, test):
            continue
        if not _is_between(said.get("loss"), 0, sys.float_info.max):
            continue
        size[client], right[client], loss[client] = said["size"], said["right"], said["loss"]
        rows = letter.tensors.get("by_class", {})
        if _adds_up(rows, classes, said["size"], said["right"]):
            total[client], correct[client] = rows["size"], rows["right"].float()
        else:
            by_class = False
    return Scores(size, right, loss, (total.numpy(), correct.numpy()) if by_class else None)


def _is_between(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


def _adds_up(rows: Mapping[str, Tensor], classes: int, size: int, right: int) -> bool:
    """Whether the numbers of each class make those of all."""
    if rows.keys() != {"size", "right"} or any(row.shape != (classes,) for row in rows.values()):
        return False
    fits = bool((rows["right"] >= 0).all()) and bool((rows["right"] <= rows["size"]).all())
    return fits and (int(rows["size"].sum()), int(rows["right"].sum())) == (size, right)
