"""A federation small enough to try a method on in milliseconds, and what to do with it."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from fedcohort.core.engine import Engine
from fedcohort.core.evaluate import in_use
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.round.loop import Report, start, step
from fedcohort.core.round.merge import present
from fedcohort.core.state import State, pack, unpack
from fedcohort.core.task import Task
from fedcohort.data import Federation, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines.reference import ReferenceEngine

ROUNDS = 4


@lru_cache(maxsize=8)
def _tiny_federation(seed: int, clients: int) -> Federation:
    data = load("synthetic", samples=320, classes=4, features=12, spread=0.5)
    deal = partitioner("dirichlet", clients=clients, alpha=0.5, min_size=8)
    return federate(data, deal, SplitPlan(validation=0.2), seed)


def tiny_task(seed: int = 0, clients: int = 8, **conditions: Any) -> Task:
    """Twelve-dimensional blobs of four classes on a few skewed clients: a round takes milliseconds."""
    given = {"local": Local(lr=0.2, epochs=2, batch=24), "cohort": 4, **conditions}
    return replace(_plain_task(seed, clients), **given)


@lru_cache(maxsize=8)
def _plain_task(seed: int, clients: int) -> Task:
    """Its network is made and tried out once: it is a template, which nobody trains."""
    return Task.of(_tiny_federation(seed, clients), "mlp", {"widths": [8]}, seed=seed)


def play(
    method: Method, task: Task, rounds: int = ROUNDS, state: State | None = None, engine: Engine | None = None
) -> tuple[State, list[Report]]:
    """``rounds`` rounds from ``state`` (or the start), with what happened in each."""
    task = task.for_method(method)
    profile = task.profile(method)
    state = start(method, task, profile) if state is None else state
    reports = []
    for _ in range(rounds):
        state, report = step(method, state, task, profile, engine or ReferenceEngine(task))
        reports.append(report)
    return state, reports


def history(method: Method) -> tuple[State, ...]:
    """The states before and after each of ``ROUNDS`` rounds, which several laws start from."""
    return tuple(state for state, _ in _made(method))


def untouched(method: Method) -> tuple[State, ...]:
    """Copies of the states of :func:`history`, each from before a round was played from it."""
    return tuple(copy for _, copy in _made(method))


@lru_cache(maxsize=4)
def _made(method: Method) -> tuple[tuple[State, State], ...]:
    states = [play(method, tiny_task(), 0)[0]]
    copies = [copied(states[0])]
    for _ in range(ROUNDS):
        states.append(play(method, tiny_task(), 1, states[-1])[0])
        copies.append(copied(states[-1]))
    return tuple(zip(states, copies, strict=True))


def copied(state: State) -> State:
    """What is left of a state that is packed and read again; nothing of it is shared."""
    return unpack({key: value.clone() for key, value in pack(state).items()})


def accuracy(method: Method, task: Task, state: State) -> float:
    """Of all test samples, each answered by the model that serves its client."""
    task = task.for_method(method)
    models, kept = in_use(method, state, task, ReferenceEngine(task))
    _, engine = present(method, state, task, ReferenceEngine(task))
    scores = engine.score(models, kept=kept)
    return float(scores.right.sum() / scores.size.sum())


def assert_same(ours: State, theirs: State, sentence: str) -> None:
    """Bit for bit."""
    a, b = pack(ours), pack(theirs)
    assert a.keys() == b.keys(), f"{sentence}: {sorted(a.keys() ^ b.keys())} are only in one of them"
    for key in a:
        same = a[key].dtype == b[key].dtype and torch.equal(a[key].nan_to_num(), b[key].nan_to_num())
        assert same, f"{sentence}: '{key}' differs"
