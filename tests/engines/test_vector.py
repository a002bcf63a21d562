"""Compiled kernels take the steps that autograd takes, with vectors of either width."""

from functools import cache

import pytest
import torch
from torch import nn

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Anchor, LogitMap, View
from fedcohort.core.roles import Objective
from fedcohort.core.round.local_training import Job, by_autograd, prepare
from fedcohort.core.task import Task
from fedcohort.data import SplitPlan, federate, load
from fedcohort.data.augment import Augment
from fedcohort.data.partition import partitioner
from fedcohort.engines import vector
from fedcohort.engines.chain import Chain
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.vector.program import Program
from fedcohort.models.flat import Flat, Weights
from fedcohort.testing import play

CLASSES = 5
NETWORKS = {  # each with images of (channels, height, width)
    # Few outputs, so lanes along the rows; margins; an odd side before pooling; ReLU on either side of it.
    "pooled": ((3, 9, 32), lambda: nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=(1, 2)), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(5, 18, (3, 2), padding=1), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(),
        nn.Linear(18 * 2 * 9, 14), nn.ReLU(), nn.Linear(14, CLASSES),
    )),
    # More outputs than lanes, and no multiple; strides; no ReLU or pooling; kernels beyond all registers.
    "strided": ((2, 11, 13), lambda: nn.Sequential(
        nn.Conv2d(2, 40, 3, stride=(2, 1), padding=1), nn.Conv2d(40, 9, (2, 11)), nn.ReLU(), nn.Flatten(),
        nn.Linear(9 * 5 * 3, CLASSES),
    )),
    "few outputs, not pooled": ((1, 7, 70), lambda: nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 5 * 68, CLASSES),
    )),
    "dense": ((2, 5, 7), lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(70, 30), nn.ReLU(), nn.Linear(30, 13), nn.Linear(13, CLASSES),
    )),
}  # fmt: skip
OPTIMISERS = {
    "sgd": Local(lr=0.05, batch=7, weight_decay=0.01),
    "momentum": Local(lr=0.05, batch=7, momentum=0.9),
    "nesterov": Local(lr=0.05, batch=7, momentum=0.9, nesterov=True),
    "adam": Local(lr=0.001, batch=7, optimiser="adam", weight_decay=0.01),
}


class Everything(Objective):
    """All that an objective may ask of compiled steps."""

    def anchor(self, view: View) -> Anchor:
        start = view.down["params"]
        return Anchor(0.3, start + 0.1, 0.01 * start, 0.02 * start)

    def logits(self, view: View) -> LogitMap:
        numbers = torch.arange(1, 1 + CLASSES)
        return LogitMap(numbers / 3, -numbers.float())


@cache
def network(name: str) -> tuple[tuple[int, ...], Flat]:
    shape, build = NETWORKS[name]
    return shape, Flat(build)


@cache
def program(name: str, lanes: int) -> Program:
    shape, model = network(name)
    chain = Chain.of(model)
    assert chain is not None
    return Program(chain, shape, lanes)


def job(name: str, local: Local, objective: Objective | None = None, size: int = 17, augment=None) -> Job:
    """Two full batches and a short one."""
    (shape, model), draw = network(name), torch.Generator().manual_seed(0)
    x, y = torch.rand(size, *shape, generator=draw), torch.randint(CLASSES, (size,), generator=draw)
    start, counts = model.init(1), torch.bincount(y, minlength=CLASSES)
    down = {"params": start.params, "buffers": start.buffers}
    view = View(down, {}, counts, size, local.lr, local.steps_for(size))
    return prepare(objective or Objective(), model, local, x, y, view, (0, 0, 0), None, augment)


def both(name: str, lanes: int, work: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights after our steps and after autograd's, whose losses are the same."""
    ours, theirs = (Weights(work.begun().params.clone(), torch.zeros(0)) for _ in range(2))
    assert program(name, lanes).takes(work)
    trace = program(name, lanes).descend(work, ours)
    torch.testing.assert_close(trace, by_autograd(work, theirs), rtol=1e-5, atol=1e-5)
    assert (theirs.params - work.begun().params).abs().max() > 1e-3
    return ours.params, theirs.params


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("local", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_those_of_autograd(name, local, lanes):
    for objective in (Objective(), Everything()):
        ours, theirs = both(name, lanes, job(name, local, objective))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 if local.optimiser == "adam" else 1e-6)


@pytest.mark.parametrize("lanes", [8, 16])
def test_changed_images_are_the_same(lanes):
    augment = Augment(torch.full((3, 1, 1), 0.4), torch.tensor([0.2, 0.3, 0.5]).view(3, 1, 1))
    local = OPTIMISERS["momentum"]
    plain, changed = job("pooled", local, size=40), job("pooled", local, size=40, augment=augment)
    standard = (plain.x - augment.mean) / augment.std
    ours, theirs = both("pooled", lanes, changed._replace(x=standard))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    unchanged, _ = both("pooled", lanes, plain._replace(x=standard))
    assert not torch.allclose(ours, unchanged, atol=1e-4)


@pytest.mark.parametrize("lanes", [8, 16])
def test_of_equal_outputs_the_first_is_the_largest(lanes, monkeypatch):
    """Sums of zeros and ones are often equal where what was summed is not."""
    build = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(1, 2, 2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2 * 3 * 8, CLASSES)
    )
    monkeypatch.setitem(NETWORKS, "ties", ((1, 7, 17), build))
    work = job("ties", Local(lr=0.05, batch=7))
    start = work.begun().params
    start[:8], start[8:10] = 1.0, 0.0
    ours, theirs = both("ties", lanes, work._replace(x=work.x.round()))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_what_is_not_a_number_is_left_to_others():
    work = job("pooled", OPTIMISERS["sgd"])
    work.x[3, 0, 4, 4] = torch.nan
    weights = Weights(work.begun().params.clone(), torch.zeros(0))
    assert program("pooled", 8).descend(work, weights) is None
    assert torch.equal(weights.params, work.begun().params)


def test_only_examples_that_exist_are_read():
    ours, work = program("pooled", 8), job("pooled", OPTIMISERS["sgd"])
    assert ours.takes(work)
    assert not ours.takes(work._replace(y=work.y + 1))
    assert not ours.takes(work._replace(x=work.x[:10]))
    assert not ours.takes(work._replace(x=work.x.double()))
    assert not ours.takes(work._replace(x=work.x.transpose(2, 3)))


def test_workers_and_a_missing_compiler_change_nothing(monkeypatch):
    build = lambda classes: nn.Sequential(  # noqa: E731
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, classes)
    )
    deal = partitioner("dirichlet", clients=6, alpha=0.5)
    task = Task.of(federate(load("digits"), deal, SplitPlan()), build, local=OPTIMISERS["momentum"], cohort=4)

    def weights(workers: int) -> torch.Tensor:
        return (
            play(Method.parse("fedavg"), task, 2, engine=PoolEngine(task, workers))[0]
            .groups[0]
            .weights.params
        )

    one = weights(1)
    assert torch.equal(one, weights(3))
    taken = []
    monkeypatch.setattr(vector, "find_spec", lambda name: taken.append(name))
    torch.testing.assert_close(weights(2), one, rtol=0, atol=1e-5)
    assert "llvmlite" in taken
