"""FedAvgM: Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019. https://arxiv.org/abs/1909.06335

Equation:
    D = sum_k p_k delta_k
    v <- beta v + D
    x <- x + server_lr v                  (nesterov: D + beta v in place of v)

Where we differ:
    Implementations disagree on Nesterov momentum; here it is an option, off by default. In a round in which
    nobody answers the velocity is neither applied nor lost.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcohort.api import (
    Memory,
    Profile,
    Round,
    ServerOptimiser,
    Updates,
    above,
    at_least,
    below,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FedAvgM(ServerOptimiser):
    """FedAvg whose server keeps momentum."""

    beta: Annotated[float, at_least(0), below(1), tune(0, 0.99)] = 0.9  # share of the last velocity kept
    server_lr: Annotated[float, above(0), tune(0.1, 3)] = 1.0  # length of the server's step
    nesterov: bool = False  # look ahead along the new velocity

    def init_server(self, profile: Profile) -> Memory:
        return {"velocity": torch.zeros(profile.model.num_params)}

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        velocity = self.beta * memory["velocity"] + move
        direction = move + self.beta * velocity if self.nesterov else velocity
        return params + self.server_lr * direction, {"velocity": velocity}
