"""The toy problem of the equation tests: client k minimises f_k(x) = curvature_k (x - b_k)^2 / 2, x a number.

The network below has cross-entropy 1 + f_k(x), so methods, engine and round loop run as they are and
a round can be followed with pencil and paper. Unless a test says otherwise: x starts at 1, lr = 0.1,
b = (3, -1, 1), n = (10, 30, 20), and the clients take (2, 3, 2) full-batch steps x <- x - 0.1 (x - b):

    client 0: 1 -> 1.2 -> 1.38            client 1: 1 -> 0.8 -> 0.62 -> 0.458            client 2: stays at 1
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedcohort.core.engine import Answer, Order
from fedcohort.core.method import Method, make, parse
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Ids, Memory, Round, Updates, View
from fedcohort.core.roles import Grouping, Objective, Selector, ServerOptimiser
from fedcohort.core.round.loop import start, step
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Flat

START = 1.0


class Quadratic(nn.Module):
    """Two logits whose cross-entropy with label 0 is 1 + curvature (x - b)^2 / 2; the 1 keeps both finite."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor([START]))

    def forward(self, example: Tensor) -> Tensor:
        b, curvature = example.unbind(1)
        loss = 1 + curvature * (self.x - b) ** 2 / 2
        return torch.stack([-loss, torch.log(-torch.expm1(-loss))], dim=1)  # log-probabilities


@dataclass(frozen=True)
class ToyTask(Task):
    """A task in which every client has its own number of steps."""

    client_steps: tuple[int, ...] = (2, 3, 2)

    def budget(self, client: int, number: int) -> Local:
        return replace(super().budget(client, number), steps=self.client_steps[client])


def toy_task(
    b: Sequence[float] = (3.0, -1.0, 1.0),
    sizes: Sequence[int] = (10, 30, 20),
    steps: Sequence[int] = (2, 3, 2),
    curvature: Sequence[float] = (1.0, 1.0, 1.0),
    local: Local | None = None,
) -> ToyTask:
    """The toy problem; a client of size n holds n copies of the same example."""
    owner = torch.repeat_interleave(torch.arange(len(b)), torch.tensor(sizes))
    x = torch.stack([torch.tensor(b)[owner], torch.tensor(curvature[: len(b)])[owner]], dim=1)
    y = torch.zeros(len(x), dtype=torch.long)
    rows = [(owner == client).nonzero().flatten() for client in range(len(b))]
    train, nothing = Split.of(x, y, rows), Split.of(x, y, [torch.zeros(0)] * len(b))
    names = tuple(str(client) for client in range(len(b)))
    federation = Federation(train, nothing, nothing, ("low", "high"), names, None, {})
    local = local or Local(lr=0.1, batch=100)
    return ToyTask(federation, Flat(Quadratic), local, cohort=len(b), client_steps=tuple(steps))


@dataclass(frozen=True)
class Cohorts(Selector):
    """Selects the clients that the test says, round by round; the last entry is repeated."""

    schedule: tuple[tuple[int, ...], ...]
    name: ClassVar[str] = "cohorts"

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        wanted = self.schedule[min(now.number, len(self.schedule) - 1)]
        return torch.tensor([c for c in wanted if c in now.members], dtype=torch.long)


@dataclass(frozen=True)
class Regrouped(Grouping):
    """Serves everybody by one model, and after each round regroups as the test says."""

    schedule: tuple[tuple[int, ...], ...]
    name: ClassVar[str] = "regrouped"

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        return {"group": torch.tensor(self.schedule[min(now.number, len(self.schedule) - 1)])}


class Failing(ReferenceEngine):
    """The reference engine, but ``lost`` clients never answer."""

    lost: tuple[int, ...] = ()

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        return super().train(objective, [o for o in orders if o.client not in self.lost], number)


def play_toy(
    text: str,
    *cohorts: tuple[int, ...],
    task: Task | None = None,
    lost: tuple[int, ...] = (),
    rounds: int | None = None,
    grouping: Grouping | None = None,
) -> list[State]:
    """The states after each round of a method with these cohorts; ``lost`` clients do not answer."""
    parts = [part for name, values in parse(text) for part in make(name, values)]
    method = Method.of(Cohorts(cohorts), *parts, *([grouping] if grouping else []))
    return play_method(method, task or toy_task(), rounds or len(cohorts), lost)


def play_method(method: Method, task: Task, rounds: int, lost: tuple[int, ...] = ()) -> list[State]:
    """The states after each of ``rounds`` rounds."""
    profile, engine = task.profile(method), Failing(task)
    engine.lost = lost
    states = [start(method, task, profile)]
    for _ in range(rounds):
        states.append(step(method, states[-1], task, profile, engine)[0])
    return states[1:]


def position(state: State, group: int = 0) -> float:
    """Where a group's model stands."""
    return float(state.groups[group].weights.params)


def profile_of(counts: np.ndarray | Sequence[Sequence[float]], held_out: int = 1, seed: int = 0) -> Profile:
    """What a server knows of clients with these label counts."""
    table = torch.as_tensor(np.asarray(counts), dtype=torch.float64)
    size = table.sum(1).long()
    held = torch.full_like(size, held_out)
    return Profile(size, held, table, table.shape[1], Flat(Quadratic), Local(), seed)


def round_of(profile: Profile, cohort: int, number: int = 0) -> Round:
    """A round in which all clients with data form one group."""
    return Round(number, replace(profile, cohort=cohort), 0, profile.eligible, cohort)


def updates_of(ids: Sequence[int], trace: Tensor | None = None, **fields: Tensor) -> Updates:
    """Answers of these clients, with ten samples each unless ``fields`` says otherwise."""
    count = len(ids)
    given = {
        "ids": torch.tensor(ids, dtype=torch.long),
        "group": torch.zeros(count, dtype=torch.long),
        "size": torch.full((count,), 10),
        "steps": torch.ones(count, dtype=torch.long),
        "reach": torch.ones(count),
        "trace": torch.zeros(count, 1) if trace is None else trace,
        "buffers": torch.zeros(count, 0),
        **fields,
    }
    return Updates(up={}, **given)  # type: ignore[arg-type]


def two_languages(task: Task) -> Task:
    """The same task, but the second half of the clients call every class by another name."""
    federation = task.federation
    classes, clients = federation.num_classes, federation.num_clients

    def translate(split: Split) -> Split:
        y = split.y.clone()
        rows = torch.cat([split.rows(client) for client in range(clients // 2, clients)])
        y[rows] = (y[rows] + classes // 2) % classes
        return replace(split, y=y)

    train, test = translate(federation.train), translate(federation.test)
    validation = translate(federation.validation)
    return replace(task, federation=replace(federation, train=train, validation=validation, test=test))


def two_steps(part: ServerOptimiser, v0: float) -> tuple[list[float], list[float]]:
    """Where x = (1, 1) goes with D1 = (.3, -.1), then D2 = (.1, .2), in double precision."""
    now, nobody = round_of(profile_of([[1, 1]]), 1), updates_of([])
    x = torch.ones(2, dtype=torch.float64)
    memory = {"m": torch.zeros_like(x), "v": torch.full_like(x, v0), "steps": torch.tensor(0)}
    first, memory = part.step(x, torch.tensor([0.3, -0.1], dtype=torch.float64), memory, nobody, now)
    second, memory = part.step(first, torch.tensor([0.1, 0.2], dtype=torch.float64), memory, nobody, now)
    assert int(memory["steps"]) == 2
    return first.tolist(), second.tolist()


LOGITS = (2.0, 1.0, 0.5)


def view_of(*counts: int) -> View:
    return View({}, {}, torch.tensor(counts), sum(counts), 0.1, 1)


def loss_and_slope(part: Objective, label: int, *counts: int) -> tuple[float, list[float]]:
    """Of one sample with the logits (2, 1, .5), at a client with these label counts."""
    logits = torch.tensor([LOGITS], dtype=torch.float64, requires_grad=True)
    loss = part.criterion(logits, torch.tensor([label]), view_of(*counts))
    loss.backward()
    assert logits.grad is not None
    return float(loss.detach()), logits.grad[0].tolist()
