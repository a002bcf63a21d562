"""FedYogi: Reddi et al., "Adaptive Federated Optimization", ICLR 2021. https://arxiv.org/abs/2003.00295

Equation:
    D = sum_k p_k delta_k
    m <- beta1 m + (1 - beta1) D
    v <- v - (1 - beta2) D^2 sign(v - D^2)
    x <- x + server_lr m / (sqrt(v) + tau)

Where we differ:
    - Clients weigh by their samples, as in the paper's experiments; Algorithm 2 averages evenly
      (``fairavg+fedyogi``).
    - The paper starts v at tau squared and corrects no bias; its code does the opposite (``v0="zero",
      bias="standard"``).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

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
class FedYogi(ServerOptimiser):
    """FedAvg whose server takes Yogi's steps: Adam's, with a second moment that forgets no faster than it
    learns."""

    server_lr: Annotated[float, above(0), tune(1e-3, 1)] = 0.03  # length of the server's step
    beta1: Annotated[float, at_least(0), below(1)] = 0.9  # share of the last direction that is kept
    beta2: Annotated[float, at_least(0), below(1)] = 0.99  # how slowly the second moment changes
    tau: Annotated[float, above(0)] = 1e-3  # keeps small denominators away from zero
    v0: _fedopt.Start = "tau2"  # the second moment's start: tau squared (the paper), or zero (its code)
    bias: Literal["none", "standard"] = "none"  # correction of moments that started at zero

    def init_server(self, profile: Profile) -> Memory:
        return _fedopt.start(profile, self.v0, self.tau)

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        square = move**2
        v = memory["v"] - (1 - self.beta2) * square * (memory["v"] - square).sign()
        lr = self.server_lr
        if self.bias == "standard":
            lr = _fedopt.unbiased(lr, self.beta1, self.beta2, int(memory["steps"]) + 1)
        return _fedopt.advance(params, move, v, memory, lr, self.beta1, self.tau)
