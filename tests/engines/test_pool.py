"""The pool engine takes every way of computing a round to the reference's result."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from fedcohort.core.engine import ModelTrial
from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Anchor, LogitMap, View
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data import Federation, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines import pool
from fedcohort.engines.batched import BatchedEngine
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.testing import assert_same, play, tiny_task

pytestmark = pytest.mark.usefixtures("without_compiler")
OPTIMISERS = {
    "sgd": Local(lr=0.1, epochs=2, batch=8),
    "decay": Local(lr=0.1, epochs=2, batch=8, weight_decay=0.05),
    "momentum": Local(lr=0.1, epochs=2, batch=8, momentum=0.9, weight_decay=0.01),
    "nesterov": Local(lr=0.1, steps=5, batch=8, momentum=0.9, nesterov=True),
    "nesterov without momentum": Local(lr=0.1, epochs=2, batch=8, nesterov=True, weight_decay=0.05),
    "adam": Local(lr=0.01, epochs=1, batch=8, optimiser="adam", weight_decay=0.01),
}
METHODS = ("fedavg", "fedprox(mu=0.5)", "fedavgm", "clust_psi_pfl", "scaffold(option='I')", "fednova", "cafa")


@pytest.fixture(params=[True, False], ids=["together", "alone"])
def path(request, monkeypatch):
    """All clients in blocks, or each by itself."""
    monkeypatch.setattr(pool, "is_small", lambda *_: request.param)


@cache  # whichever path the pool takes
def by_the_reference(text: str, local: Local) -> tuple[State, list[Report]]:
    return play(Method.parse(text), tiny_task(local=local), 2)


@pytest.mark.parametrize("local", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("text", METHODS)
def test_linear_networks_agree_with_the_reference(text, local, path):
    task, method = tiny_task(local=local), Method.parse(text)
    slow, told = by_the_reference(text, local)
    fast, also_told = play(method, task, 2, engine=PoolEngine(task))
    for ours, theirs in zip(fast.groups, slow.groups, strict=True):
        torch.testing.assert_close(ours.weights.params, theirs.weights.params, rtol=0, atol=1e-5)
    assert [report.loss for report in told] == pytest.approx([report.loss for report in also_told], abs=1e-5)


@pytest.mark.parametrize("engine", [PoolEngine, BatchedEngine])
def test_a_client_with_broken_examples_is_left_out_alone(engine, path):
    """Row 0 is what short batches are easily padded with."""
    task, method = tiny_task(cohort=1.0), Method.parse("fedavg")
    train = task.federation.train
    x, owner = train.x.clone(), int(train.client[train.index == 0])
    x[0] = torch.inf
    task = replace(task, federation=replace(task.federation, train=replace(train, x=x)))
    slow, told = play(method, task, 2)
    fast, also_told = play(method, task, 2, engine=engine(task))
    for report in (*told, *also_told):
        assert report.rejected.tolist() == [owner]
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def dead_network(classes: int) -> nn.Module:
    """One whose ReLU cuts everything that the first feature says."""
    first = nn.Linear(12, 8)
    with torch.no_grad():
        first.weight[:, 0] = -first.weight[:, 0].abs()
    return nn.Sequential(first, nn.ReLU(), nn.Linear(8, classes))


EXTREME = {
    "an infinite example that a ReLU cuts": (Local(lr=0.1, steps=1, batch=64), torch.inf),
    "an example whose square is infinite": (Local(lr=0.1, epochs=3, batch=64), 1e25),
    "decay beyond all numbers": (Local(lr=1e3, steps=40, batch=8, momentum=0.9, weight_decay=0.05), 1.0),
    "a last step too far": (Local(lr=1e34, steps=1, batch=64), -1e10),
}


@pytest.mark.parametrize(("local", "value"), EXTREME.values(), ids=EXTREME)
def test_numbers_out_of_range_reject_whom_the_reference_rejects(local, value, path):
    given = tiny_task().federation
    x = given.train.x.clone()
    x[given.train.rows(1)[0], 0] = value
    federation = replace(given, train=replace(given.train, x=x))
    task, method = Task.of(federation, dead_network, local=local, cohort=1.0), Method.parse("fedavg")
    (slow, (told,)), (fast, (also_told,)) = (
        play(method, task, 1, engine=engine(task)) for engine in (ReferenceEngine, PoolEngine)
    )
    assert also_told.rejected.tolist() == told.rejected.tolist()
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", ["fedrs", "fedlc(tau=1.0)"])
def test_changed_logits_agree_with_the_reference(text, path):
    task, method = tiny_task(), Method.parse(text)
    slow, fast = play(method, task, 3)[0], play(method, task, 3, engine=PoolEngine(task))[0]
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_adam_sees_small_slopes_beside_a_pull():
    """Its steps do not get smaller with the slope: one that is rounded away is a step that is missing."""
    local = Local(lr=0.05, epochs=2, batch=8, optimiser="adam")
    given, method = tiny_task().federation, Method.parse("fedprox(mu=1.0)")
    x = given.train.x.clone()
    x[:, :3] *= 1e-7
    task = Task.of(replace(given, train=replace(given.train, x=x)), "mlp", {"widths": [8]}, local=local)
    slow, fast = play(method, task, 2)[0], play(method, task, 2, engine=PoolEngine(task))[0]
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


@dataclass(frozen=True)
class PulledBySize(Objective):
    """Large clients are pulled back more."""

    name = "pulled_by_size"

    def anchor(self, view: View) -> Anchor:
        return Anchor(pull=0.01 * view.size)


@dataclass(frozen=True)
class SomePushed(Objective):
    """Large clients' gradients are changed, small ones' are not."""

    name = "some_pushed"

    def anchor(self, view: View) -> Anchor:
        return Anchor(offset=torch.ones_like(view.down["params"]) if view.size > 30 else None)


@dataclass(frozen=True)
class ScaledByShare(Objective):
    """Logits change in double precision, and some clients' by one number for all classes."""

    name = "scaled_by_share"

    def logits(self, view: View) -> LogitMap:
        share = view.counts.double() / view.size
        return LogitMap(scale=1 + share) if view.size > 30 else LogitMap(shift=share.max())


@dataclass(frozen=True)
class Forbidden(Objective):
    """Nobody may guess the class of which it has most, so losses are infinite and slopes are not."""

    name = "forbidden"

    def logits(self, view: View) -> LogitMap:
        return LogitMap(shift=torch.where(view.counts == view.counts.max(), -torch.inf, 0.0))


@pytest.mark.parametrize("engine", [PoolEngine, BatchedEngine])
def test_infinite_losses_are_told(engine, path):
    task, method = tiny_task(cohort=1.0, local=Local(steps=1, batch=64)), Method.of(Forbidden())
    told = [play(method, task, 1, engine=each(task))[1][0] for each in (ReferenceEngine, engine)]
    assert [report.loss for report in told] == [torch.inf] * 2


@pytest.mark.parametrize("engine", [PoolEngine, BatchedEngine])
@pytest.mark.parametrize("objective", [PulledBySize(), SomePushed(), ScaledByShare()])
def test_clients_that_differ_agree_with_the_reference(objective, engine, path):
    task, method = tiny_task(), Method.of(objective)
    slow, fast = play(method, task, 3)[0], play(method, task, 3, engine=engine(task))[0]
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


class WithSpare(nn.Module):
    """One of its layers is never used."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(12, classes), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


NETWORKS = {
    "no ReLU between layers": lambda classes: nn.Sequential(nn.Linear(12, 8), nn.Linear(8, classes)),
    "ReLU at the end": lambda classes: nn.Sequential(nn.Linear(12, 8), nn.Linear(8, classes), nn.ReLU()),
    "a spare layer": WithSpare,
    "BatchNorm that remembers nothing": lambda classes: nn.Sequential(
        nn.Linear(12, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.ReLU(), nn.Linear(8, classes)
    ),
}


@cache  # for every engine and path
def unusual(name: str) -> tuple[Task, State]:
    """A task with such a network, and what the reference makes of it."""
    task = Task.of(tiny_task().federation, NETWORKS[name], local=OPTIMISERS["momentum"], cohort=1.0)
    return task, play(Method.parse("fedavg"), task, 2)[0]


@pytest.mark.parametrize("engine", [PoolEngine, BatchedEngine])
@pytest.mark.parametrize("name", NETWORKS)
def test_unusual_networks_agree_with_the_reference(name, engine, path):
    task, slow = unusual(name)
    fast = play(Method.parse("fedavg"), task, 2, engine=engine(task))[0]
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def small_cnn(classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, classes),
    )  # fmt: skip


@cache
def dealt_digits() -> Federation:
    return federate(load("digits"), partitioner("dirichlet", clients=20, alpha=0.5), SplitPlan())


@pytest.mark.parametrize("local", OPTIMISERS.values(), ids=OPTIMISERS)
def test_any_network_agrees_with_the_reference(local):
    """Convolutions, BatchNorm and its buffers, max-pooling through the faster kernel."""
    task = Task.of(dealt_digits(), small_cnn, local=local, cohort=2)
    slow, fast = (
        play(Method.parse("fedavg"), task, 2, engine=e(task))[0] for e in (ReferenceEngine, PoolEngine)
    )
    for ours, theirs in zip(fast.groups[0].weights, slow.groups[0].weights, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_dropout_is_the_same_on_one_worker_or_many():
    def network(classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, classes)
        )

    task = Task.of(tiny_task().federation, network, local=OPTIMISERS["sgd"], cohort=4)
    runs = [play(Method.parse("fedavg"), task, 2, engine=PoolEngine(task, n))[0] for n in (1, 4)]
    assert_same(*runs, "dropout")


def test_evaluation_agrees_with_the_reference():
    task = tiny_task()
    slow, fast = ReferenceEngine(task), PoolEngine(task, 2)
    weights = [task.model.init(seed) for seed in range(3)]
    everyone = torch.arange(task.federation.num_clients)
    first = ModelTrial(weights[:1], everyone)
    torch.testing.assert_close(fast.losses(first), slow.losses(first))
    ours, theirs = (engine.cross_accuracy(ModelTrial(weights, everyone[:4])) for engine in (fast, slow))
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_clients_are_evaluated_in_pieces_and_whole(monkeypatch):
    """Seven rows at a time: losses, accuracies and scores are of all rows of every client."""
    monkeypatch.setattr(pool, "EVALUATE", 7)
    task = tiny_task()
    slow, fast = ReferenceEngine(task), PoolEngine(task, 2)
    weights, everyone = [task.model.init(seed) for seed in range(2)], torch.arange(8)
    assert int(task.federation.train.sizes.min()) > 7
    first = ModelTrial(weights[:1], everyone)
    torch.testing.assert_close(fast.losses(first), slow.losses(first))
    trial = ModelTrial(weights, everyone)
    torch.testing.assert_close(fast.cross_accuracy(trial), slow.cross_accuracy(trial), equal_nan=True)
    served = [(weights[0]._asdict(), everyone)]
    assert fast.score(served).right.tolist() == slow.score(served).right.tolist()


def test_small_clients_are_trained_together_and_large_ones_alone():
    chain = PoolEngine(tiny_task()).chain
    assert pool.is_small(chain, size=60, steps=2, batch=32)
    assert not pool.is_small(chain, size=5000, steps=800, batch=32)
