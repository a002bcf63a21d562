"""FedAdam: Reddi et al., "Adaptive Federated Optimization", ICLR 2021. https://arxiv.org/abs/2003.00295

Equation:
    D = sum_k p_k delta_k
    m <- beta1 m + (1 - beta1) D
    v <- beta2 v + (1 - beta2) D^2
    x <- x + server_lr m / (sqrt(v) + tau)

Where we differ:
    - Clients weigh by their samples, as in the paper's experiments; Algorithm 2 averages evenly
      (``fairavg+fedadam``).
    - The paper starts v at tau squared and corrects no bias. Its code does the opposite (``v0="zero",
      bias="standard"``), and Flower counts one step ahead (``v0="zero", bias="flower"``).
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
class FedAdam(ServerOptimiser):
    """FedAvg whose server takes Adam's steps."""

    server_lr: Annotated[float, above(0), tune(1e-3, 1)] = 0.03  # length of the server's step
    beta1: Annotated[float, at_least(0), below(1)] = 0.9  # share of the last direction that is kept
    beta2: Annotated[float, at_least(0), below(1)] = 0.99  # share of the last second moment that is kept
    tau: Annotated[float, above(0)] = 1e-3  # keeps small denominators away from zero
    v0: _fedopt.Start = "tau2"  # the second moment's start: tau squared (the paper), or zero (its code)
    bias: Literal["none", "standard", "flower"] = "none"  # correction of moments that started at zero

    def init_server(self, profile: Profile) -> Memory:
        return _fedopt.start(profile, self.v0, self.tau)

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        v = self.beta2 * memory["v"] + (1 - self.beta2) * move**2
        lr, count = self.server_lr, int(memory["steps"]) + (2 if self.bias == "flower" else 1)
        if self.bias != "none":
            lr = _fedopt.unbiased(lr, self.beta1, self.beta2, count)
        return _fedopt.advance(params, move, v, memory, lr, self.beta1, self.tau)
