"""Compiled kernels take the steps that autograd takes, with vectors of either width.

The judge is autograd in double precision. BatchNorm can make so much of a rounding that two ways to add are
soon apart, PyTorch's as far from the truth as ours. There the first step has to be near to it, and later
ones must not be further from it than PyTorch's: the median over some starts, because in a single one either
may be a thousand times nearer by chance.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from statistics import median

import pytest
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.records import Anchor, LogitMap, View
from fedcohort.core.roles import Objective
from fedcohort.core.round.local_training import LocalSteps, by_autograd, prepare
from fedcohort.core.state import pack
from fedcohort.core.task import Task
from fedcohort.data import Federation, SplitPlan, federate, load
from fedcohort.data.augment import Augment
from fedcohort.data.partition import partitioner
from fedcohort.engines import vector
from fedcohort.engines.chain import Chain
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.engines.vector import language, machine
from fedcohort.engines.vector.program import Program
from fedcohort.models import flat_model
from fedcohort.models.flat import Flat, Weights
from fedcohort.testing import play
from fedcohort.testing.precise import precise, taken

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
    "dense": ((1, 2, 5), lambda: nn.Sequential(
        nn.Conv2d(1, 7, 1), nn.Flatten(), nn.Linear(70, 30), nn.ReLU(), nn.Linear(30, 13),
        nn.Linear(13, CLASSES),
    )),
    # BatchNorm between ReLU and pooling, before both and behind both; odd sides; of images and of vectors.
    # Few samples have few different numbers, so what their deviations are divided by is kept from zero.
    "normed": ((2, 11, 13), lambda: nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(5), nn.MaxPool2d(2), nn.Dropout(0.3),
        nn.Conv2d(5, 18, 2, padding=1), nn.BatchNorm2d(18, momentum=0.3), nn.ReLU(), nn.Flatten(),
        nn.Linear(18 * 6 * 7, 14), nn.ReLU(), nn.BatchNorm1d(14, eps=0.1), nn.Dropout(0.5),
        nn.Linear(14, CLASSES),
    )),
    "normed, then pooled": ((1, 10, 12), lambda: nn.Sequential(
        nn.Conv2d(1, 9, 3), nn.BatchNorm2d(9), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(9, 6, 1), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(6, eps=0.1), nn.Flatten(),
        nn.Linear(24, 20), nn.ReLU(), nn.BatchNorm1d(20, eps=0.1), nn.Linear(20, CLASSES),
    )),
    "dropped": ((1, 9, 8), lambda: nn.Sequential(
        nn.Conv2d(1, 10, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2),
        nn.Conv2d(10, 7, 2), nn.Dropout(0.4), nn.Flatten(),
        nn.Linear(28, 9), nn.ReLU(), nn.Dropout(0.5), nn.Linear(9, CLASSES),
    )),
}  # fmt: skip
OPTIMISERS = {
    "sgd": Local(lr=0.05, batch=11, weight_decay=0.01),
    "momentum": Local(lr=0.05, batch=11, momentum=0.9),
    "nesterov": Local(lr=0.05, batch=11, momentum=0.9, nesterov=True),
    "adam": Local(lr=0.001, batch=11, optimiser="adam", weight_decay=0.01),
}
# They ask something of local steps: pulls, offsets, drifts, other logits or sums, models of their own.
METHODS = (
    "fedprox(mu=0.5)", "scaffold", "scaffold(mode='niid')", "feddyn", "fedlc", "fedrs", "fednova",
    "local_only",
)  # fmt: skip

# Medians of so many, drawn from 60 measured starts, are above the factor less than once in a thousand times.
STARTS, FACTOR = 9, 3.0


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


@cache
def small_clients(clients: int = 60) -> Federation:
    return federate(load("digits"), partitioner("dirichlet", clients=clients, alpha=0.5), SplitPlan())


def job(
    name: str, local: Local, objective: Objective | None = None, size: int = 31, augment=None, seed: int = 0
) -> LocalSteps:
    """Two full batches and a short one."""
    (shape, model), draw = network(name), torch.Generator().manual_seed(seed)
    x, y = torch.rand(size, *shape, generator=draw), torch.randint(CLASSES, (size,), generator=draw)
    start, counts = model.init(1 + seed), torch.bincount(y, minlength=CLASSES)
    down = {"params": start.params, "buffers": start.buffers}
    view = View(down, {}, counts, size, local.lr, local.steps_for(size))
    return prepare(objective or Objective(), model, local, x, y, view, (seed, 0, 0), None, augment)


def tolerance(local: Local) -> float:
    """Adam takes the direction of a slope that is hardly more than rounding for as good as any other."""
    return 1e-4 if local.optimiser == "adam" else 1e-6


def both(name: str, lanes: int, work: LocalSteps) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights after our steps and after autograd's in double precision, whose losses are the same."""
    begun = work.begun()
    assert program(name, lanes).takes(work)
    ours, trace = taken(work, program(name, lanes).descend)
    theirs, losses = taken(work, by_autograd, torch.float64)
    torch.testing.assert_close(trace, losses, rtol=1e-4, atol=1e-5)
    assert (theirs.params - begun.params).abs().max() > 1e-3
    torch.testing.assert_close(ours.buffers.double(), theirs.buffers, rtol=1e-4, atol=tolerance(work.local))
    assert not begun.buffers.numel() or not torch.allclose(theirs.buffers.float(), begun.buffers, atol=1e-2)
    return ours.params.double(), theirs.params


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("local", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_those_of_autograd(name, local, lanes):
    for objective in (Objective(), Everything()):
        ours, theirs = both(name, lanes, job(name, local, objective))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=tolerance(local))


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", [name for name in NETWORKS if not name.startswith("normed")])
def test_a_batch_may_be_a_single_sample(name, lanes):
    """Each, or the last of a client."""
    for batch, size in ((1, 3), (11, 12)):
        ours, theirs = both(name, lanes, job(name, Local(lr=0.05, batch=batch), Everything(), size))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


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


def test_batches_too_small_for_batch_norm_are_left_to_others():
    """Of a few nearly equal numbers it makes much of a rounding. Pixels count: images need fewer samples."""
    local = replace(OPTIMISERS["sgd"], batch=8)
    assert program("normed", 8).takes(job("normed", local, size=24))
    assert not program("normed", 8).takes(job("normed", local, size=23))
    assert program("dropped", 8).takes(job("dropped", local, size=23))


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", ["normed", "normed, then pooled"])
def test_slopes_and_statistics_of_batch_norm_are_autograds(name, lanes):
    """One step, before a rounding can grow, and so long that what is moved hides nothing of its slope. From
    20 starts with each of these sizes the worst were 4e-6 of the largest slope, and 6e-6 of a statistic."""
    for size in (2, 3, 5, 7, 8, 11, 16, 17):
        work = job(name, Local(lr=1024, batch=size), size=size)
        ours, _ = taken(work, program(name, lanes).descend)
        exact, _ = taken(work, by_autograd, torch.float64)
        moved = (exact.params - work.begun().params).abs().max()
        assert (ours.params - exact.params).abs().max() < 1e-5 * moved
        torch.testing.assert_close(ours.buffers.double(), exact.buffers, rtol=1e-5, atol=1e-7)


def test_a_step_of_a_papers_network_is_as_exact_as_the_reference(monkeypatch):
    """Seven BatchNorms deep, a rounding grows within a step. From 60 starts the ratio's median was 1.0."""
    build = flat_model("cifar_cnn", (3, 8, 8), CLASSES, {}).build
    monkeypatch.setitem(NETWORKS, "cifar_cnn", ((3, 8, 8), build))
    ratios = []
    for seed in range(STARTS):
        work = job("cifar_cnn", Local(lr=0.05, batch=16), Everything(), 16, seed=seed)
        exact, _ = taken(work, by_autograd, torch.float64)
        compiled, autograd = (taken(work, how)[0] for how in (program("cifar_cnn", 8).descend, by_autograd))
        ratios.append(
            float((compiled.params - exact.params).norm() / (autograd.params - exact.params).norm())
        )
    assert median(ratios) < FACTOR


PLAIN = [name for name in NETWORKS if not name.startswith(("normed", "dropped"))]


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", PLAIN)
def test_answers_are_the_networks(name, lanes):
    """For more examples than are answered at a time, with the first weights and with those after steps."""
    work, ours = job(name, OPTIMISERS["sgd"], size=150), program(name, lanes)
    weights, module = work.begun(), network(name)[1].build().double()
    for _ in range(2):
        vector_to_parameters(weights.params.double(), module.parameters())
        answers = ours.answers(weights, work.x)
        assert answers is not None
        torch.testing.assert_close(answers.double(), module(work.x.double()), rtol=1e-4, atol=1e-5)
        weights, _ = taken(work, ours.descend)


def test_steps_after_answers_are_the_same_steps():
    """They use the same memory: whatever answers leave there, numbers or none, and in another worker's or in
    that of earlier answers, with room for more samples."""
    work, chain = job("pooled", OPTIMISERS["sgd"]), Chain.of(network("pooled")[1])
    assert chain is not None
    before, used, new = (Program(chain, (3, 9, 32), 8) for _ in range(3))
    steps = taken(work, before.descend)[0].params
    taken(work, used.descend)
    for program in (used, new):
        for x in (torch.rand(150, 3, 9, 32), torch.full((30, 3, 9, 32), torch.nan)):
            program.answers(work.begun(), x)
        assert torch.equal(taken(work, program.descend)[0].params, steps)


def test_what_evaluation_does_otherwise_is_not_answered():
    for name in ("normed", "dropped"):
        work = job(name, OPTIMISERS["sgd"])
        assert program(name, 8).answers(work.begun(), work.x) is None
    work, ours = job("pooled", OPTIMISERS["sgd"]), program("pooled", 8)
    for x in (work.x / 0, work.x.double(), work.x.transpose(2, 3), work.x[:0]):
        assert ours.answers(work.begun(), x) is None


def test_compiled_answers_are_those_of_the_reference_engine(monkeypatch):
    """Of two models, in pieces, by two workers; each of the pieces is compiled code's."""
    task, pieces, answers = digits(small_network), [], Program.answers

    def watched(program: Program, weights: Weights, x: torch.Tensor) -> torch.Tensor | None:
        pieces.append(len(x))
        found = answers(program, weights, x)
        assert found is not None
        return found

    monkeypatch.setattr(Program, "answers", watched)
    asked = [(task.model.init(seed), torch.arange(seed, 1300)) for seed in range(2)]
    ours = PoolEngine(task, 2).predict_each(asked, task.data.train)
    assert sorted(pieces) == [275, 276, 1024, 1024]
    for here, there in zip(ours, ReferenceEngine(task).predict_each(asked, task.data.train), strict=True):
        for found, expected in zip(here, there, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_workers_and_a_missing_compiler_change_nothing(monkeypatch):
    task = digits(small_network, lr=0.05, momentum=0.9)

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


def after(name: str, ours: Program) -> torch.Tensor:
    work = job(name, OPTIMISERS["momentum"])
    weights = Weights(work.begun().params.clone(), work.begun().buffers.clone())
    assert ours.descend(work, weights) is not None
    return torch.cat(weights)


@pytest.mark.parametrize("lanes", [8, 16])
def test_a_processor_that_cannot_reorder_lanes_does_the_same(monkeypatch, lanes):
    """One that is no x86 moves them one by one."""
    shape, model = network("normed")
    usual = after("normed", program("normed", lanes))
    monkeypatch.setattr(language, "REORDERS", False)
    assert torch.equal(after("normed", Program(Chain.of(model), shape, lanes)), usual)


@pytest.mark.parametrize("together", [1, 11 * (5 * 5 * 6 + 14) * 2])
def test_dropout_may_draw_for_a_few_batches_at_a_time(monkeypatch, together):
    usual = after("normed", program("normed", 8))
    monkeypatch.setattr(vector.program, "GATHER", together)
    assert torch.equal(after("normed", program("normed", 8)), usual)


def small_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 10))


def normed() -> nn.Module:
    return nn.Sequential(
        *[nn.Conv2d(1, 6, 3), nn.ReLU(), nn.BatchNorm2d(6), nn.MaxPool2d(2), nn.Dropout(0.3)],
        *[nn.Conv2d(6, 9, 2), nn.BatchNorm2d(9, momentum=0.3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10)],
    )


def digits(build: Callable[[], nn.Module], **local: object) -> Task:
    """Clients with a few batches of nine, and a shorter last one."""
    return Task.of(small_clients(), lambda classes: build(), local=Local(batch=9, **local), cohort=3)


def after_rounds(task: Task, engine: ReferenceEngine | None = None, method: str = "fedavg") -> torch.Tensor:
    """All numbers that two rounds leave behind, whosever they are."""
    state = pack(play(Method.parse(method), task, 2, engine=engine)[0])
    numbers = [state[key] for key in sorted(state) if state[key].is_floating_point()]
    return torch.cat([each.double().flatten() for each in numbers])


@pytest.mark.parametrize(
    "end",
    [lambda: [nn.Conv2d(4, 10, 6), nn.Flatten()], lambda: [nn.Flatten(), nn.Linear(144, 10), nn.ReLU()]],
    ids=["a convolution", "ReLU"],
)
def test_networks_that_do_not_end_with_a_linear_layer_are_left_to_others(end):
    task = digits(lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), *end()))
    ours, theirs = after_rounds(task, PoolEngine(task)), after_rounds(task)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@cache
def programs(lanes: int) -> Callable[..., Program | None]:
    """A memory of its own for each kind of processor."""
    return lru_cache(vector._program.__wrapped__)


@pytest.fixture(params=[8, 16], ids=["8 lanes", "16 lanes"])
def descents(request, monkeypatch):
    """Processors of either kind; how often compiled kernels trained a client, and whether to the end."""
    ended, descend = [], Program.descend
    monkeypatch.setattr(machine, "usual_lanes", lambda: request.param)
    monkeypatch.setattr(vector, "_program", programs(request.param))
    monkeypatch.setattr(Program, "descend", lambda *given: ended.append(descend(*given)) or ended[-1])
    return ended


@cache
def of_the_reference(method: str) -> tuple[Task, torch.Tensor]:
    """What any number of lanes is compared with. Clients train in both rounds, and remember the first."""
    build = lambda classes: nn.Sequential(  # noqa: E731
        *[nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 9, 2), nn.ReLU()],
        *[nn.Flatten(), nn.Linear(36, classes)],
    )
    task = Task.of(small_clients(3), build, local=Local(lr=0.05, batch=9, steps=6), cohort=3)
    return task, after_rounds(task, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_rounds_of_methods_are_the_reference_engines(method, descents):
    """What clients remember between rounds is compared, too."""
    task, theirs = of_the_reference(method)
    torch.testing.assert_close(after_rounds(task, PoolEngine(task), method), theirs, rtol=0, atol=1e-5)
    assert len(descents) == 2 * 3
    assert all(trace is not None for trace in descents)


@pytest.mark.parametrize("bn", ["average", "local", "fresh"])
def test_a_step_with_batch_norm_is_the_reference_engines(bn, descents):
    """Whoever keeps the statistics, with any number of workers. The worst of 15 starts was twice as near."""
    task = digits(normed, bn=bn, lr=0.05, steps=1)
    ours, exact = after_rounds(task, PoolEngine(task, 1)), after_rounds(precise(task))
    assert torch.equal(ours, after_rounds(task, PoolEngine(task, 3)))
    torch.testing.assert_close(ours, exact, rtol=2e-6, atol=2e-7)
    assert len(descents) == 2 * 2 * 3
    assert all(trace is not None for trace in descents)


@cache
def reference_runs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In double precision, and in single."""
    task = replace(digits(normed, lr=0.2), seed=seed)
    return after_rounds(precise(task)), after_rounds(task)


def test_runs_with_batch_norm_are_as_exact_as_the_reference_engines(descents):
    """Roundings grow, for PyTorch as for the kernels, and which of them ends nearer to double precision is
    chance: of 60 runs the ratio's median was 0.9 with 8 lanes and 1.0 with 16, its range 0.02 to 17."""
    ratios = []
    for seed in range(STARTS):
        exact, theirs = reference_runs(seed)
        task = replace(digits(normed, lr=0.2), seed=seed)
        ours = after_rounds(task, PoolEngine(task, 1))
        ratios.append(float((ours - exact).norm() / (theirs - exact).norm()))
    assert median(ratios) < FACTOR
    assert len(descents) == STARTS * 2 * 3


def test_without_a_compiler_autograd_takes_such_steps(without_compiler):
    task = digits(normed, steps=1)
    torch.testing.assert_close(after_rounds(task, PoolEngine(task)), after_rounds(task), rtol=1e-4, atol=1e-5)
