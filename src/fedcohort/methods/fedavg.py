"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    x <- x + server_lr sum_k p_k delta_k

Where we differ:
    The paper has no ``server_lr``; 1 is the paper.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcohort.api import Aggregator, Memory, Round, Updates, above, register


@register
@dataclass(frozen=True)
class FedAvg(Aggregator):
    """The mean of the clients' movements, weighted by their samples."""

    server_lr: Annotated[float, above(0)] = 1.0  # 1 replaces the model by the clients' mean

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        return params + self.server_lr * move, memory
