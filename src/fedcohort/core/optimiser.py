"""The optimiser of one client for one round, and its reach."""

from torch import Tensor

from fedcohort.core.profile import Local
from fedcohort.util.descent import Rule, first_memory, take_step


def rule(local: Local, lr: float) -> Rule:
    return Rule(lr, local.optimiser == "adam", local.momentum, local.nesterov, local.weight_decay)


class Optimiser:
    """One client's optimiser for one round; it starts fresh and is thrown away after."""

    def __init__(self, local: Local, params: Tensor) -> None:
        self.local, self.memory, self.count = local, first_memory(rule(local, local.lr), params), 0

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
