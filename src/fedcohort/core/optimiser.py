"""SGD and Adam on one flat vector, with PyTorch's conventions, and the reach of a linear optimiser.

``torch.optim`` costs two seconds of import and four times the work per step on a single vector.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.profile import Local


class Rule(NamedTuple):
    """What one step does, in numbers."""

    lr: float
    adam: bool
    momentum: float
    nesterov: bool
    weight_decay: float


def rule(local: Local, lr: float) -> Rule:
    return Rule(lr, local.optimiser == "adam", local.momentum, local.nesterov, local.weight_decay)


def first_memory(local: Local, params: Tensor) -> list[Tensor]:
    """What the optimiser remembers before its first step: Adam's two moments, or the velocity."""
    count = 2 if local.optimiser == "adam" else int(local.momentum > 0)
    return [torch.zeros_like(params) for _ in range(count)]


def take_step(
    rule: Rule, params: Tensor, slope: Tensor, memory: list[Tensor], number: int,
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8,
) -> None:  # fmt: skip
    """Step ``number``, counted from 1: moves ``params`` and ``memory`` in place."""
    if rule.weight_decay != 0:
        slope = slope.add(params, alpha=rule.weight_decay)
    if rule.adam:
        first, second = memory[0], memory[1]
        first.lerp_(slope, 1 - b1)
        second.mul_(b2).addcmul_(slope, slope, value=1 - b2)
        spread = second.sqrt().div_((1 - b2**number) ** 0.5).add_(eps)
        params.addcdiv_(first, spread, value=-rule.lr / (1 - b1**number))
        return
    if rule.momentum != 0:
        velocity = memory[0].mul_(rule.momentum).add_(slope)
        slope = slope.add(velocity, alpha=rule.momentum) if rule.nesterov else velocity
    params.add_(slope, alpha=-rule.lr)


class Optimiser:
    """One client's optimiser for one round; it starts fresh and is thrown away after."""

    def __init__(self, local: Local, params: Tensor) -> None:
        self.local, self.memory, self.count = local, first_memory(local, params), 0

    def step(self, params: Tensor, slope: Tensor, lr: float) -> None:
        """Moves ``params`` in place."""
        self.count += 1
        take_step(rule(self.local, lr), params, slope, self.memory, self.count)


def reach(local: Local, lr: float, steps: int, pull: float = 0.0) -> float:
    """How far a constant unit gradient would move a parameter in one round.

    FedNova's ``lr * ||a||_1`` and the divisor that makes SCAFFOLD exact under momentum: a scalar 1 is
    pushed through the same update. Weight decay is left out, as in FedNova's own code. Adam is not linear;
    there, and only there, this is ``lr * steps``.
    """
    if local.optimiser == "adam":
        return lr * steps
    position, velocity = 0.0, 0.0
    for _ in range(steps):
        gradient = 1.0 + pull * position
        velocity = local.momentum * velocity + gradient
        position -= lr * (gradient + local.momentum * velocity if local.nesterov else velocity)
    return -position
