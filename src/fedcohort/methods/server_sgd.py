"""The server's plain step: FedOpt with SGD at the server, of Reddi et al., "Adaptive Federated Optimization",
ICLR 2021. https://arxiv.org/abs/2003.00295

Equation:
    x <- x + lr D, D the move that averaging made of all updates

Where we differ:
    Nothing known. With lr = 1 it is the server of FedAvg, whose paper has no such rate.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcohort.api import Memory, Round, ServerOptimiser, Updates, above, register, tune


@register
@dataclass(frozen=True)
class ServerSGD(ServerOptimiser):
    """Follows the clients' mean movement, by default the whole way."""

    lr: Annotated[float, above(0), tune(0.1, 3)] = 1.0  # length of its step; 1 takes the clients' mean

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        return params + self.lr * move, memory
