"""fedcohort's side: the problems that peers are given, and any method on them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

import fedcohort as fc
from crosschecks.network import build, first_network, flat
from crosschecks.problem import LR, Moves, Training
from fedcohort.bench.task import Replay
from fedcohort.core.engine import Answer, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import start, step
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Flat
from fedcohort.util.keyed import generator, numpy_generator

CLIENTS, COHORT, ROUNDS = 10, 4, 8


@dataclass(frozen=True)
class Budgeted(Task):
    """A task in which every client has its own number of steps."""

    client_steps: tuple[int, ...] = ()

    def budget(self, client: int, number: int) -> Local:
        return replace(super().budget(client, number), steps=self.client_steps[client])


class Scripted(ReferenceEngine):
    """Clients that answer what the script says."""

    moves: Moves

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        return [self.recite(order.client, number) for order in orders]

    def recite(self, client: int, number: int) -> Answer:
        delta = torch.from_numpy(self.moves.deltas[number, client])
        loss = torch.tensor(self.moves.losses[number, client])
        size, told = int(self.task.data.train.sizes[client]), {"loss_before": loss}
        return Answer(client, {"delta": delta}, {}, torch.zeros(0), loss[None], 1, LR, told, size)


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


def make_moves(params: int = 200) -> Moves:
    """Moves of very different lengths, some of them zero, so that every small constant shows."""
    key = generator(0, "crosschecks", "moves")
    length = 10 ** torch.empty(params).uniform_(-4, -1, generator=key)
    length[:5] = 0
    noise, trend = torch.randn(ROUNDS, CLIENTS, params, generator=key), torch.randn(params, generator=key)
    sizes = torch.randint(10, 200, (CLIENTS,), generator=key)
    losses = torch.empty(ROUNDS, CLIENTS).uniform_(0.2, 2, generator=key)
    init = torch.randn(params, generator=key)
    return Moves(((noise + trend) * length).numpy(), losses.numpy(), sizes.numpy(), init.numpy())


def play(method: str, problem: Training) -> np.ndarray:
    """``[rounds, P]``: the model after each round."""
    local = Local(lr=LR, batch=len(problem.y))
    rows = [np.flatnonzero(problem.owner == client) for client in range(problem.clients)]
    task = Budgeted(
        federation_of(torch.from_numpy(problem.x), torch.from_numpy(problem.y), rows),
        Flat(lambda: first_network(problem)),
        local,
        cohort=problem.cohorts.shape[1],
        client_steps=tuple(problem.steps.tolist()),
    )
    cohorts = torch.from_numpy(problem.cohorts)
    replayed = replace(Method.parse(method), selector=Replay(cohorts))
    return _trajectory(replayed, task, ReferenceEngine(task), len(cohorts))


def take_steps(method: str, moves: Moves) -> np.ndarray:
    """``[rounds, P]``: the model after each of the server's steps."""
    clients, params = moves.deltas.shape[1:]
    rows = np.split(np.arange(moves.sizes.sum()), np.cumsum(moves.sizes)[:-1])
    nothing = torch.zeros(int(moves.sizes.sum()), 1)

    def model() -> torch.nn.Module:
        layer = torch.nn.Linear(params, 1, bias=False)
        layer.weight.data = torch.from_numpy(moves.init)[None].clone()
        return layer

    task = Task(federation_of(nothing, nothing[:, 0].long(), rows), Flat(model), Local(lr=LR), cohort=clients)
    engine = Scripted(task)
    engine.moves = moves
    return _trajectory(Method.parse(method), task, engine, len(moves.deltas))


def federation_of(x: torch.Tensor, y: torch.Tensor, rows: list[np.ndarray]) -> Federation:
    train, none = Split.of(x, y, rows), Split.of(x, y, [np.zeros(0)] * len(rows))
    classes = tuple(map(str, range(int(y.max()) + 1)))
    return Federation(train, none, none, classes, tuple(map(str, range(len(rows)))), None, {})


def _trajectory(method: Method, task: Task, engine: ReferenceEngine, rounds: int) -> np.ndarray:
    profile = task.profile(method)
    state, path = start(method, task, profile), []
    for _ in range(rounds):
        state, _ = step(method, state, task, profile, engine)
        path.append(state.groups[0].weights.params.numpy())
    return np.stack(path)
