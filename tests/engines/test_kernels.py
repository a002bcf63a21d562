"""Faster layers give what PyTorch's give."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from fedcohort.engines.kernels import FastMaxPool2d, speed_up


@pytest.mark.parametrize("shape", [(3, 6, 28, 28), (2, 16, 10, 10), (2, 3, 7, 8)])
@pytest.mark.parametrize("rectified", [True, False])
def test_pooling_and_its_gradient(shape, rectified):
    """Behind a ReLU most maxima are ties at zero, whose gradient the ReLU stops anyway."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()
    slopes = []
    for layer in (nn.MaxPool2d(2), FastMaxPool2d(2)):
        out = layer(x.relu() if rectified else x)
        slopes.append(torch.autograd.grad((out * out).sum(), x)[0])
    torch.testing.assert_close(slopes[1], slopes[0])


def test_of_equal_elements_the_first_has_the_slope():
    """A picture of one colour, as PyTorch has it; two equal rows, and two equal columns."""
    rows = torch.arange(4.0).expand(1, 1, 4, 4)
    for x in (torch.ones(1, 1, 4, 4), rows, rows.mT):
        slopes = []
        for layer in (nn.MaxPool2d(2), FastMaxPool2d(2)):
            at = x.clone().requires_grad_()
            slopes.append(torch.autograd.grad(layer(at).sum(), at)[0])
        assert slopes[1].equal(slopes[0])


def test_only_the_plain_halving_is_replaced():
    others = [nn.MaxPool2d(3), nn.MaxPool2d(2, stride=1), nn.MaxPool2d(2, padding=1), nn.AvgPool2d(2)]
    network = speed_up(nn.Sequential(nn.MaxPool2d(2), nn.Sequential(nn.MaxPool2d(2)), *others))
    assert isinstance(network[0], FastMaxPool2d)
    assert isinstance(network[1][0], FastMaxPool2d)
    assert list(network[2:]) == others


@pytest.mark.parametrize("relu_first", [True, False])
def test_what_follows_may_work_in_place(relu_first):
    pair = [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    layers = [nn.Conv2d(1, 4, 3), *(pair if relu_first else pair[::-1]), nn.Flatten(), nn.Linear(36, 3)]
    plain, fast = nn.Sequential(*layers), speed_up(deepcopy(nn.Sequential(*layers)))
    x = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for network in (plain, fast):
        network(x).square().sum().backward()
    for ours, theirs in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)
