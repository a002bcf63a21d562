"""FedAdagrad: Reddi et al., "Adaptive Federated Optimization", ICLR 2021. https://arxiv.org/abs/2003.00295

Equation:
    D = sum_k p_k delta_k
    m <- beta1 m + (1 - beta1) D
    v <- v + D^2
    x <- x + server_lr m / (sqrt(v) + tau)

Where we differ:
    - Clients weigh by their samples, as in the paper's experiments; Algorithm 2 averages evenly
      (``fairavg+fedadagrad``).
    - The paper starts v at tau squared, its code at zero (``v0="zero"``).
"""

from dataclasses import dataclass
from typing import Annotated

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
from fedcohort.methods import _fedopt


@register
@dataclass(frozen=True)
class FedAdagrad(ServerOptimiser):
    """FedAvg whose server divides its step by the root of all squared movements so far."""

    server_lr: Annotated[float, above(0), tune(1e-3, 1)] = 0.1  # length of the server's step
    beta1: Annotated[float, at_least(0), below(1)] = 0.0  # share of the last direction that is kept
    tau: Annotated[float, above(0)] = 1e-3  # keeps small denominators away from zero
    v0: _fedopt.Start = "tau2"  # the second moment's start: tau squared (the paper), or zero (its code)

    def init_server(self, profile: Profile) -> Memory:
        return _fedopt.start(profile, self.v0, self.tau)

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        v = memory["v"] + move**2
        return _fedopt.advance(params, move, v, memory, self.server_lr, self.beta1, self.tau)
