"""What FedAdagrad, FedAdam and FedYogi share: Reddi et al., "Adaptive Federated Optimization", ICLR 2021,
Algorithm 2. https://arxiv.org/abs/2003.00295

The server treats the clients' mean movement D as a gradient: ``m <- beta1 m + (1 - beta1) D``, a running
second moment v that is each method's own, and ``x <- x + lr m / (sqrt(v) + tau)``.
"""

from typing import Literal

import torch
from torch import Tensor

from fedcohort.api import Memory, Profile

Start = Literal["tau2", "zero"]


def start(profile: Profile, v0: Start, tau: float) -> Memory:
    """Moments before the first step, and how many steps were taken."""
    size = profile.model.num_params
    v = torch.full((size,), tau**2 if v0 == "tau2" else 0.0)
    return {"m": torch.zeros(size), "v": v, "steps": torch.tensor(0)}


def advance(
    params: Tensor, move: Tensor, v: Tensor, memory: Memory, lr: float, beta1: float, tau: float
) -> tuple[Tensor, Memory]:
    """The server's step, given its new second moment."""
    m = beta1 * memory["m"] + (1 - beta1) * move
    return params + lr * m / (v.sqrt() + tau), {"m": m, "v": v, "steps": memory["steps"] + 1}


def unbiased(lr: float, beta1: float, beta2: float, step: int) -> float:
    """The learning rate that makes up for moments that started at zero, at the ``step``-th step from 1."""
    return lr * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
