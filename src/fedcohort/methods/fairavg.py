"""FairAvg: Michieli and Ozay, "Are All Users Treated Fairly in Federated Learning Systems?", CVPR Workshops
2021.

Equation:
    x <- x + (1 / |S|) sum_k delta_k

Where we differ:
    - Read from the abstract. BatchNorm statistics are averaged by samples, as by most averagings
      (``bn="even"``: evenly, too).
    - ``everything`` is for comparisons like CAFA's, whose plain mean also trains on the data that the method
      it is compared with holds out to validate.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedcohort.api import Averaging, Memory, Round, Updates, register


@register
@dataclass(frozen=True)
class FairAvg(Averaging):
    """The plain mean of the clients' movements: every client weighs the same, however much data it holds."""

    bn: Literal["samples", "even"] = "samples"  # how BatchNorm statistics are averaged
    everything: bool = False  # train on what is held out for validation, too

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return updates.even

    def statistics(self, weights: Tensor, updates: Updates) -> Tensor:
        return updates.even if self.bn == "even" else updates.shares
