"""SGD and Adam on one flat vector, with PyTorch's conventions, and the reach of a linear optimiser.

``torch.optim`` costs two seconds of import and four times the work per step on a single vector.
"""

import torch
from torch import Tensor

from fedcohort.core.profile import Local

ADAM_BETAS = (0.9, 0.999)
ADAM_EPS = 1e-8


class Optimiser:
    """One client's optimiser for one round; it starts fresh and is thrown away after."""

    def __init__(self, local: Local, params: Tensor) -> None:
        self.local = local
        self.count = 0
        if local.optimiser == "adam":
            self.first, self.second = torch.zeros_like(params), torch.zeros_like(params)
        elif local.momentum:
            self.velocity = torch.zeros_like(params)

    def step(self, params: Tensor, gradient: Tensor, lr: float) -> None:
        """Moves ``params`` in place; may reuse ``gradient``'s memory."""
        if self.local.weight_decay:
            gradient = gradient.add(params, alpha=self.local.weight_decay)
        if self.local.optimiser == "adam":
            self._adam(params, gradient, lr)
        else:
            params.add_(self._direction(gradient), alpha=-lr)

    def _direction(self, gradient: Tensor) -> Tensor:
        momentum = self.local.momentum
        if not momentum:
            return gradient
        self.velocity.mul_(momentum).add_(gradient)
        return gradient.add(self.velocity, alpha=momentum) if self.local.nesterov else self.velocity

    def _adam(self, params: Tensor, gradient: Tensor, lr: float) -> None:
        self.count += 1
        (b1, b2), t = ADAM_BETAS, self.count
        self.first.lerp_(gradient, 1 - b1)
        self.second.mul_(b2).addcmul_(gradient, gradient, value=1 - b2)
        spread = self.second.sqrt().div_((1 - b2**t) ** 0.5).add_(ADAM_EPS)
        params.addcdiv_(self.first, spread, value=-lr / (1 - b1**t))


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
