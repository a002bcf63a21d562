"""What a method sends, measured on one task for all: the bytes in the documentation's tables.

The model is the MLP 784-200-200-10 of many papers, and ten of a hundred clients train in a round. A client
holds a single class, so that groupings find ten clear groups and cohorts do not depend on luck.
"""

from functools import cache
from typing import NamedTuple

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.testing import play

ROUNDS = 2  # whose traffic is averaged
ABOUT = (
    "Counted from the tensors that travel, with an MLP 784-200-200-10 (199,210 numbers, 0.797 MB) and 10 of "
    f"100 clients a round, of one class and two local steps each; the mean of the first {ROUNDS} rounds."
)


class Traffic(NamedTuple):
    """Bytes."""

    before: float  # up, once before training
    up: float  # in a round
    down: float  # in a round


@cache
def traffic(name: str) -> Traffic:
    """Of the method with its default settings."""
    method, task = Method.parse(name), reference_task()
    start, _ = play(method, task, 0)
    end, _ = play(method, task, ROUNDS, start)
    up, down = end.bytes_up - start.bytes_up, end.bytes_down - start.bytes_down
    return Traffic(start.bytes_up, up / ROUNDS, down / ROUNDS)


@cache
def reference_task() -> Task:
    data = load("synthetic", samples=1000, classes=10, features=784)
    deal = partitioner("similarity", clients=100, similarity=0.0)
    federation = federate(data, deal, SplitPlan(validation=0.2), seed=0)
    local = Local(lr=0.05, steps=2, batch=4)
    return Task.of(federation, "mlp", {"widths": [200, 200]}, local=local, cohort=10)
