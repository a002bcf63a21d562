"""Steps of SGD and Adam on one flat vector, with PyTorch's conventions.

``torch.optim`` costs two seconds of import and four times the work per step on a single vector.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam


class Rule(NamedTuple):
    """What one step does, in numbers."""

    lr: float
    adam: bool = False
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


def first_memory(rule: Rule, params: Tensor) -> list[Tensor]:
    """What the optimiser remembers before its first step: Adam's two moments, or the velocity."""
    count = 2 if rule.adam else int(rule.momentum > 0)
    return [torch.zeros_like(params) for _ in range(count)]


def take_step(
    rule: Rule, params: Tensor, slope: Tensor, memory: list[Tensor], number: int,
    b1: float = BETAS[0], b2: float = BETAS[1], eps: float = EPSILON,
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
