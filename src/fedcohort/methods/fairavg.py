"""FairAvg: Michieli and Ozay, "Are All Users Treated Fairly in Federated Learning Systems?", CVPR Workshops
2021.

Equation:
    x <- x + (1 / |S|) sum_k delta_k

Where we differ:
    Nothing known; read from the abstract.
"""

from dataclasses import dataclass

from torch import Tensor

from fedcohort.core.method import register
from fedcohort.core.parts import Aggregator, Memory, Round, Updates


@register
@dataclass(frozen=True)
class FairAvg(Aggregator):
    """The plain mean of the clients' movements: every client weighs the same, however much data it holds."""

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return updates.even
