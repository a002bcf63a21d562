"""A job as fedcohort sees it: the stored cohorts, from the stored first weights.

The order of a client's examples is fedcohort's own keyed one: the same number of steps over the same
examples.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedcohort.bench.jobs import CLASSES, Data
from fedcohort.core.engine import Engine
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Ids, Memory, Round
from fedcohort.core.roles import Selector
from fedcohort.core.round.loop import start
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.models.flat import Weights


@dataclass(frozen=True)
class Replay(Selector):
    """Chooses the stored cohorts."""

    cohorts: Tensor  # [rounds, cohort]

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return self.cohorts[now.number]


def build_task(data: Data) -> tuple[Method, Task]:
    """A job as fedcohort sees it."""
    job = data.job
    x, y = torch.from_numpy(data.x), torch.from_numpy(data.y)
    test_rows = np.array_split(np.arange(len(data.y_test)), job.clients)
    federation = Federation(
        train=Split.of(x, y, [data.rows(client) for client in range(job.clients)]),
        validation=Split.of(x, y, [np.zeros(0, dtype=np.int64)] * job.clients),
        test=Split.of(torch.from_numpy(data.x_test), torch.from_numpy(data.y_test), test_rows),
        classes=tuple(map(str, range(CLASSES))),
        clients=tuple(map(str, range(job.clients))),
        truth=None,
        provenance={"job": job.name},
    )
    local = Local(
        lr=job.lr,
        epochs=job.epochs,
        batch=job.batch,
        optimiser="adam" if job.adam else "sgd",
        momentum=job.momentum,
        weight_decay=job.weight_decay,
        augment="fedentopt" if job.augment else None,
    )
    task = Task.of(federation, job.model, local=local, cohort=job.cohort, seed=job.seed)
    return Method.of(Replay(torch.from_numpy(data.cohorts))), task


def first_state(method: Method, task: Task, data: Data) -> State:
    """The state before the first round, with the job's first weights."""
    state = start(method, task, task.profile(method))
    weights = Weights(torch.from_numpy(data.init), torch.zeros(0))
    return dataclasses.replace(state, groups=(dataclasses.replace(state.groups[0], weights=weights),))


def accuracy(engine: Engine, state: State, task: Task) -> float:
    """Of the one global model on the test set."""
    everybody = torch.arange(task.federation.num_clients)
    scores = engine.score([(state.groups[0].weights._asdict(), everybody)])
    return float(scores.right.sum() / scores.size.sum())
