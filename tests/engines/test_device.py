"""Nothing of a client's work is left on the CPU when model and data are elsewhere.

There is no GPU here. PyTorch's ``meta`` device has shapes and no numbers, and like a GPU it refuses to be
mixed with tensors of the CPU; unlike a GPU it cannot tell whether a result is right.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from fedcohort.core.engine import Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Memory
from fedcohort.core.round.local_training import LocalSteps, prepare
from fedcohort.core.round.preparation import prepare as prepare_round
from fedcohort.core.round.questions import answered
from fedcohort.core.task import Task
from fedcohort.data import Federation, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.methods.topk import TopK
from fedcohort.testing.tiny import play, tiny_task
from support.methods import FEDERATED

META = torch.device("meta")
TWO_STEPS = Local(lr=0.2, steps=2, batch=24)  # the second finds what the first has left on the device


def moved(memory: Memory) -> Memory:
    """Single numbers stay: PyTorch lets them meet tensors of any device, and methods read them."""
    return {key: value.to(META) if value.ndim else value for key, value in memory.items()}


class Elsewhere(ReferenceEngine):
    """The reference with examples, labels and all that a client is sent or remembers on the device.

    Who trains on which rows is decided where the rows' numbers are, on the CPU.
    """

    def __init__(self, task: Task) -> None:
        data, self.here = task.data, ReferenceEngine(task)
        train = replace(data.train, x=data.train.x.to(META), y=data.train.y.to(META))
        unchanged = replace(task.local, augment=None)  # which would look at all images
        super().__init__(replace(task, federation=replace(data, train=train), local=unchanged))

    def size(self, order: Order) -> int:
        return self.here.size(order)

    def job(self, objective: Any, order: Order, number: int) -> LocalSteps:
        task, train = self.here.task, self.task.data.train
        own = task.data.client(order.client)
        view = self.here.view(order)
        view = view._replace(down=order.down, mine=order.mine, counts=view.counts.to(META))
        key, rows = (task.seed, number, own.number), own.rows(task.seed, order.quota)
        return prepare(objective, task.model, task.local, train.x, train.y, view, key, rows, task.augment)


def second_round(method: Method, task: Task) -> list[Order]:
    """The orders of a round in which clients and server remember something."""
    state, _ = play(method, task, 1)
    task = task.for_method(method)
    return answered(prepare_round(method, state, task, task.profile(method)), ReferenceEngine(task)).orders


def work_elsewhere(method: Method, task: Task) -> None:
    orders, task = second_round(method, task), task.for_method(method)
    there = [order._replace(down=moved(order.down), mine=moved(order.mine)) for order in orders]
    answers = Elsewhere(task).train(method.objective, there, 1)
    assert len(answers) == len(orders)
    for answer in answers:
        assert answer.trace.device == META
        told = (*answer.up.values(), *answer.mine.values(), *answer.probes.values(), answer.buffers)
        assert all(value.device == META for value in told if value.numel())


@pytest.mark.parametrize("text", FEDERATED)
def test_the_clients_work_of_a_round(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopK, "are_places", lambda *_: True)  # there are no numbers to check
    work_elsewhere(Method.parse(text), tiny_task(cohort=2, local=TWO_STEPS))


@pytest.fixture(scope="module")
def pictures() -> Federation:
    return federate(load("digits"), partitioner("iid", clients=20), SplitPlan())


def network() -> nn.Module:
    """With all that is more than a function of its parameters: statistics, dropout, a layer that stays."""
    first = nn.Conv2d(1, 4, 3)
    first.weight.requires_grad_(False)
    return nn.Sequential(
        first, nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 10)
    )


@pytest.mark.parametrize("bn", ["average", "local", "fresh"])
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_networks_and_optimisers(pictures: Federation, optimiser: str, bn: str) -> None:
    local = Local(
        optimiser=optimiser,
        bn=bn,
        steps=2,
        weight_decay=1e-3,
        momentum=0.9 * (optimiser == "sgd"),
        augment="fedentopt",
    )
    work_elsewhere(Method.parse("scaffold(option='I')"), Task.of(pictures, network, local=local, cohort=2))


@pytest.mark.parametrize("text", ["fedavg", "fedprox", "scaffold", "feddyn", "fedlc", "fedrs"])
def test_clients_side_by_side(text: str) -> None:
    method, task = Method.parse(text), tiny_task(cohort=2, local=Local(momentum=0.9, epochs=2, batch=16))
    engine = BatchedEngine(task, "meta")
    jobs = [engine.job(method.objective, order, 1) for order in second_round(method, task)]
    for job in jobs:
        params, traces = engine.descend([job, job])
        assert (params.device, traces.device) == (META, META)
        assert (params.shape, traces.shape) == ((2, task.model.num_params), (2, len(job.plan)))
