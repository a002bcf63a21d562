"""fedcohort's side: the problems that peers are given, and any method on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

import fedcohort as fc
from crosschecks.network import build, first_network, flat
from crosschecks.problem import LR, Moves, Training
from fedcohort.bench.task import Replay
from fedcohort.core.engine import Answer, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import start, step
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Flat
from fedcohort.util.keyed import generator, numpy_generator

CLIENTS, COHORT, ROUNDS = 10, 4, 8


@dataclass(frozen=True)
class Budgeted(Task):
    """A task in which every client may have its own number of steps."""

    client_steps: tuple[int, ...] = ()  # none: all have the same

    def budget(self, client: int, number: int) -> Local:
        budget = super().budget(client, number)
        return replace(budget, steps=self.client_steps[client]) if self.client_steps else budget


class Scripted(ReferenceEngine):
    """Clients that answer what the script says."""

    moves: Moves

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        return [self.recite(order.client, number) for order in orders]

    def recite(self, client: int, number: int) -> Answer:
        delta = torch.from_numpy(self.moves.deltas[number, client])
        trace = torch.from_numpy(self.moves.losses[number, client])
        size, told = int(self.task.data.train.sizes[client]), {"loss_before": trace[0]}
        return Answer(client, {"delta": delta}, {}, torch.zeros(0), trace, len(trace), LR, told, size)


def make_training(steps: Sequence[int], equal: bool = False) -> Training:
    """Handwritten digits with label skew; ``equal`` cuts every client down to the smallest one's size."""
    partition = fc.partitioner("dirichlet", clients=CLIENTS, alpha=0.3)
    train = fc.federate(fc.load("digits"), partition, seed=0).train
    smallest = int(train.sizes.min())
    rows = [train.rows(client)[: smallest if equal else None] for client in range(CLIENTS)]
    x, y = train.x[torch.cat(rows)].flatten(1), train.y[torch.cat(rows)]
    random = numpy_generator(0, "crosschecks")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        init = flat(build(x.shape[1], int(y.max()) + 1))
    return Training(
        x=x.numpy(),
        y=y.numpy(),
        owner=np.repeat(np.arange(CLIENTS), [len(own) for own in rows]),
        steps=np.array(steps),
        cohorts=np.array([np.sort(random.choice(CLIENTS, COHORT, replace=False)) for _ in range(ROUNDS)]),
        init=init.numpy(),
    )


def make_kinds(kinds: int, rounds: int, steps: int = 5) -> Training:
    """The same federation with everybody in each round, and other labels at clients of another kind."""
    problem = make_training([steps] * CLIENTS)
    return replace(
        problem,
        y=(problem.y + 3 * (problem.owner % kinds)) % 10,
        cohorts=np.tile(np.arange(CLIENTS), (rounds, 1)),
    )


def make_moves(params: int = 200) -> Moves:
    """Moves of very different lengths, some of them zero, so that every small constant shows."""
    key = generator(0, "crosschecks", "moves")
    length = 10 ** torch.empty(params).uniform_(-4, -1, generator=key)
    length[:5] = 0
    noise, trend = torch.randn(ROUNDS, CLIENTS, params, generator=key), torch.randn(params, generator=key)
    sizes = torch.randint(10, 200, (CLIENTS,), generator=key)
    losses = torch.empty(ROUNDS, CLIENTS, 1).uniform_(0.2, 2, generator=key)
    init = torch.randn(params, generator=key)
    return Moves(((noise + trend) * length).numpy(), losses.numpy(), sizes.numpy(), init.numpy())


def play(method: str, problem: Training) -> np.ndarray:
    """``[rounds, P]``: the model after each round."""
    task = task_of(problem, lambda: first_network(problem))
    return first_models(states(method, problem, task)[1:])


def task_of(problem: Training, network: Callable[[], nn.Module], held_out: float = 0, **local: Any) -> Task:
    """The problem with a network; clients hold out the last part of their examples for validation."""
    rows = [np.flatnonzero(problem.owner == client) for client in range(problem.clients)]
    steps = tuple(problem.steps.tolist())
    return Budgeted(
        federation_of(torch.from_numpy(problem.x), torch.from_numpy(problem.y), rows, held_out),
        Flat(network),
        replace(Local(lr=LR, steps=steps[0], batch=len(problem.y)), **local),
        cohort=problem.cohorts.shape[1],
        client_steps=steps if len(set(steps)) > 1 else (),
    )


def states(method: str, problem: Training, task: Task) -> list[State]:
    """Its history with the problem's cohorts; where they are everybody, it forms its own."""
    parts, cohorts = Method.parse(method), torch.from_numpy(problem.cohorts)
    if cohorts.shape[1] < problem.clients:
        parts = replace(parts, selector=Replay(cohorts))
    return history(parts, ReferenceEngine(task), len(cohorts))


def take_steps(method: str, moves: Moves) -> np.ndarray:
    """``[rounds, P]``: the model after each of the server's steps."""
    return first_models(history(Method.parse(method), scripted(moves), len(moves.deltas))[1:])


def scripted(moves: Moves, cohort: int | None = None) -> Scripted:
    """An engine whose clients answer what the script says; all of them train, or a cohort."""
    clients, params = moves.deltas.shape[1:]
    rows = np.split(np.arange(moves.sizes.sum()), np.cumsum(moves.sizes)[:-1])
    nothing = torch.zeros(int(moves.sizes.sum()), 1)

    def model() -> torch.nn.Module:
        layer = torch.nn.Linear(params, 1, bias=False)
        layer.weight.data = torch.from_numpy(moves.init)[None].clone()
        return layer

    federation = federation_of(nothing, nothing[:, 0].long(), rows)
    engine = Scripted(Task(federation, Flat(model), Local(lr=LR), cohort=cohort or clients))
    engine.moves = moves
    return engine


def federation_of(
    x: torch.Tensor, y: torch.Tensor, rows: list[np.ndarray], held_out: float = 0
) -> Federation:
    kept = [len(own) - int(held_out * len(own)) for own in rows]
    train = Split.of(x, y, [own[:n] for own, n in zip(rows, kept, strict=True)])
    validation = Split.of(x, y, [own[n:] for own, n in zip(rows, kept, strict=True)])
    none = Split.of(x, y, [np.zeros(0)] * len(rows))
    classes = tuple(map(str, range(int(y.max()) + 1)))
    return Federation(train, validation, none, classes, tuple(map(str, range(len(rows)))), None, {})


def all_models(states: Sequence[State]) -> list[np.ndarray]:
    """Of each state ``[groups, P]``."""
    return [torch.stack([group.weights.params for group in state.groups]).numpy() for state in states]


def served(states: Sequence[State]) -> np.ndarray:
    """``[states, K, P]``: the model that serves each client."""
    pairs = zip(all_models(states), states, strict=True)
    return np.stack([models[state.grouping["group"].numpy()] for models, state in pairs])


def first_models(states: Sequence[State]) -> np.ndarray:
    """``[states, P]``."""
    return np.stack([state.groups[0].weights.params.numpy() for state in states])


def history(method: Method, engine: ReferenceEngine, rounds: int) -> list[State]:
    """The states before the first round and after each."""
    profile = engine.task.profile(method)
    states = [start(method, engine.task, profile)]
    for _ in range(rounds):
        states.append(step(method, states[-1], engine.task, profile, engine)[0])
    return states
