"""Clients in the plane: a model is two numbers, and a test dictates what clients find and where they go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fedcohort.core.engine import Answer, ModelTrial, Order
from fedcohort.core.method import Method
from fedcohort.core.records import Ids, Memory
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import start, step
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Flat, Weights

Point = Sequence[float]


class Plane(nn.Module):
    """Loses 1 + .2 x - .1 y on every example of class 0: a gradient that is the same everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.zeros(2))

    def forward(self, example: Tensor) -> Tensor:
        loss = (1 + self.at @ torch.tensor([0.2, -0.1])).expand(len(example))
        return torch.stack([-loss, torch.log(-torch.expm1(-loss))], dim=1)


@dataclass
class Dictated(ReferenceEngine):
    """Clients that answer what the test says."""

    task: Task
    ends: Sequence[Point] = ()  # where each client's model ends, wherever it started
    losses_of: Sequence[Point] = ()  # each client's loss under each group's model
    asked: list[list[int]] = field(default_factory=list)

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        answers = []
        for order in orders:
            delta = torch.tensor(self.ends[order.client]) - order.down["params"]
            size = int(self.task.federation.train.sizes[order.client])
            tail = torch.zeros(0), torch.zeros(1), 1, 1.0, {}, size
            answers.append(Answer(order.client, {"delta": delta}, {}, *tail))
        return answers

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        clients = trial.clients.tolist()
        self.asked.append(clients)
        told = [answer(torch.tensor(self.losses_of[c])[:, None]) for c in clients]
        return trial.clients, torch.stack(told)


def plane_task(sizes: Sequence[int], cohort: int | None = None) -> Task:
    """Clients of these sizes; all train unless ``cohort`` says how many."""
    x, y = torch.zeros(sum(sizes), 1), torch.zeros(sum(sizes), dtype=torch.long)
    split = Split.of(x, y, list(torch.arange(sum(sizes)).split(list(sizes))))
    names = tuple(str(client) for client in range(len(sizes)))
    federation = Federation(split, split, split, ("a", "b"), names, None, {})
    return Task(federation, Flat(Plane), cohort=cohort or len(sizes))


def plane_round(text: str, engine: Dictated, models: Sequence[Point], **grouping: Tensor) -> State:
    """One round of a method whose groups' models are given, and perhaps some of its grouping's memory."""
    method, task = Method.parse(text), engine.task
    profile = task.profile(method)
    state = start(method, task, profile)
    blank = state.groups[0]
    groups = tuple(replace(blank, weights=Weights(torch.tensor(m), torch.zeros(0))) for m in models)
    memory: Memory = {**state.grouping, **grouping}
    return step(method, replace(state, groups=groups, grouping=memory), task, profile, engine)[0]


def centres(state: State) -> list[list[float]]:
    return [group.weights.params.tolist() for group in state.groups]
