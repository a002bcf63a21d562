"""The optimiser against torch.optim, and the reach against its closed forms."""

import pytest
import torch

from fedcohort.core.optimiser import Optimiser, reach
from fedcohort.core.profile import Local

SGD = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"weight_decay": 0.05},
    {"momentum": 0.7, "nesterov": True, "weight_decay": 0.01},
]


def walk(local: Local, lrs: list[float]) -> torch.Tensor:
    """Steps down f(x) = sum(a x^2) / 2 + sum(sin x) from (1, -2, 3)."""
    params, scale = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([1.0, 0.5, 3.0])
    optimiser = Optimiser(local, params)
    for lr in lrs:
        optimiser.step(params, scale * params + params.cos(), lr)
    return params


def walk_torch(make: object, lrs: list[float]) -> torch.Tensor:
    params, scale = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0])), torch.tensor([1.0, 0.5, 3.0])
    optimiser = make([params])  # type: ignore[operator]
    for lr in lrs:
        optimiser.param_groups[0]["lr"] = lr
        optimiser.zero_grad()
        ((scale * params**2).sum() / 2 + params.sin().sum()).backward()
        optimiser.step()
    return params.detach()


@pytest.mark.parametrize("given", SGD, ids=str)
def test_sgd_is_torchs(given):
    lrs = [0.05] * 10 + [0.01] * 10
    theirs = walk_torch(lambda params: torch.optim.SGD(params, lr=1.0, **given), lrs)
    torch.testing.assert_close(walk(Local(**given), lrs), theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_adam_is_torchs(weight_decay):
    lrs = [0.05] * 10 + [0.01] * 10
    theirs = walk_torch(lambda params: torch.optim.Adam(params, lr=1.0, weight_decay=weight_decay), lrs)
    ours = walk(Local(optimiser="adam", weight_decay=weight_decay), lrs)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_adam_is_torchs_where_slopes_are_tiny():
    """A slope of 1e-8 in a first step: 1e-8 / (1e-8 + 1e-8) = half of the learning rate."""
    params = torch.zeros(1)
    Optimiser(Local(optimiser="adam"), params).step(params, torch.tensor([1e-8]), 0.1)
    assert params.tolist() == pytest.approx([-0.05])


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_reach_of_sgd(steps):
    assert reach(Local(), 0.1, steps) == pytest.approx(0.1 * steps)


@pytest.mark.parametrize(("steps", "expected"), [(1, 1.0), (2, 2.9), (3, 5.61)])
def test_reach_of_momentum(steps, expected):
    """rho = .9: velocities 1, 1.9, 2.71 add up to [T - rho (1 - rho^T) / (1 - rho)] / (1 - rho)."""
    rho = 0.9
    closed = (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
    assert closed == pytest.approx(expected)
    assert reach(Local(momentum=rho), 0.1, steps) == pytest.approx(0.1 * expected)


@pytest.mark.parametrize(("steps", "expected"), [(2, 1.9), (3, 2.71)])
def test_reach_of_a_pull(steps, expected):
    """mu = 1, lr = .1: [1 - (1 - lr mu)^T] / mu = .19 and .271."""
    assert reach(Local(), 0.1, steps, pull=1.0) == pytest.approx(0.1 * expected)


@pytest.mark.parametrize(("steps", "expected"), [(2, 2.8), (3, 5.14)])
def test_reach_of_momentum_and_pull_together(steps, expected):
    """rho = .9, lr mu = .1: positions 1, 2.8, ... where g = 1 - .1 * position, v = .9 v + g."""
    assert reach(Local(momentum=0.9), 0.1, steps, pull=1.0) == pytest.approx(0.1 * expected)


@pytest.mark.parametrize("given", [case for case in SGD if "weight_decay" not in case], ids=str)
def test_reach_is_what_a_unit_gradient_moves(given):
    params = torch.zeros(1, dtype=torch.float64)
    optimiser = Optimiser(Local(**given), params)
    for _ in range(7):
        optimiser.step(params, torch.ones(1, dtype=torch.float64), 0.03)
    assert reach(Local(**given), 0.03, 7) == pytest.approx(-float(params))


def test_reach_of_adam_is_a_convention():
    assert reach(Local(optimiser="adam"), 0.1, 5) == pytest.approx(0.5)
