"""Chains of layers by hand: which networks are one, and that they move as autograd would move them."""

from functools import cache

import pytest
import torch
from torch import nn

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data import Federation, SplitPlan, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.engines import chain, lowrank, torchscript
from fedcohort.engines.chain import Chain, Norm, Tail
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.models.flat import Flat
from fedcohort.testing import play

pytestmark = pytest.mark.usefixtures("without_compiler")
OPTIMISERS = {
    "sgd": Local(lr=0.05, epochs=1, batch=8, weight_decay=0.01),
    "momentum": Local(lr=0.05, epochs=1, batch=8, momentum=0.9),
    "nesterov": Local(lr=0.05, steps=5, batch=8, momentum=0.9, nesterov=True),
    "adam": Local(lr=0.01, epochs=1, batch=8, optimiser="adam", weight_decay=0.01),
}
# 8x8 images; an odd side before the second pooling, a stride, and both orders of ReLU and pooling
CHAINS = {
    "pooled": lambda classes: nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 2), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(6, classes),
    ),
    "strided": lambda classes: nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Conv2d(4, 4, 2), nn.Flatten(),
        nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, classes),
    ),
}  # fmt: skip


@pytest.mark.parametrize("local", OPTIMISERS.values(), ids=OPTIMISERS)
@pytest.mark.parametrize("text", ["fedavg", "fedprox(mu=0.5)", "scaffold(option='I')", "fedrs"])
@pytest.mark.parametrize("build", CHAINS.values(), ids=CHAINS)
def test_convolutions_agree_with_the_reference(build, text, local):
    compare(build, text, local)


def test_a_correction_after_each_step_agrees_with_the_reference():
    compare(CHAINS["strided"], "scaffold(mode='niid')", OPTIMISERS["momentum"])


@cache
def digits() -> Federation:
    return federate(load("digits"), partitioner("dirichlet", clients=20, alpha=0.5), SplitPlan())


def compare(build, text, local):
    task = Task.of(digits(), build, local=local, cohort=2)
    assert PoolEngine(task).chain is not None
    slow, fast = (play(Method.parse(text), task, 2, engine=e(task))[0] for e in (ReferenceEngine, PoolEngine))
    ours, theirs = fast.groups[0].weights.params, slow.groups[0].weights.params
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4 if local.optimiser == "adam" else 1e-5)


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Flatten(), nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 2)],
        [nn.Flatten(), nn.Linear(12, 8), nn.Dropout(), nn.ReLU(), nn.Linear(8, 2)],
        [nn.Flatten(), nn.Dropout(), nn.Linear(12, 2)],
        [nn.Flatten(), nn.Linear(12, 2), nn.BatchNorm1d(2)],
        [nn.Flatten(), nn.Linear(12, 2, bias=False)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, affine=False), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, momentum=None), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2, track_running_stats=False), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Linear(6, 2)],
        [nn.Conv2d(1, 2, 3)],
        [nn.Conv2d(1, 2, 3), nn.Flatten()],
        [nn.Linear(4, 4), nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)],
        [nn.Linear(4, 8), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2)],  # the same for each of three moments
        [nn.utils.spectral_norm(nn.Linear(12, 8)), nn.ReLU(), nn.Linear(8, 2)],
    ],
)
def test_other_networks_are_left_to_autograd(layers):
    assert Chain.of(Flat(lambda: nn.Sequential(*layers))) is None


def test_batch_norm_and_dropout_are_for_compiled_kernels_alone():
    layers = [
        nn.Linear(12, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(8, 2),
        nn.Dropout(0),
    ]
    found = Chain.of(Flat(lambda: nn.Sequential(*layers)))
    assert found is not None
    assert not found.is_plain
    assert not found.is_linear
    assert found.layers[0].tail == Tail(Norm(0, 1e-5, 0.1), cuts=True, drops=0.25)
    assert found.layers[1].tail is None


def test_a_layer_in_two_places_is_left_to_autograd():
    def network() -> nn.Module:
        shared = nn.Linear(4, 4)
        return nn.Sequential(shared, nn.ReLU(), shared)

    assert Chain.of(Flat(network)) is None


@pytest.mark.parametrize("function", [chain.descend, lowrank.descend_together])
def test_the_steps_are_compiled(function):
    """A function that TorchScript does not understand would still work, only slower."""
    compiled = torchscript.compiled(function.__wrapped__)
    assert isinstance(compiled, torch.jit.ScriptFunction)
