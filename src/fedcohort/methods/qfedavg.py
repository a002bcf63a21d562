"""q-FedAvg: Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020.
https://arxiv.org/abs/1905.10497

Equation:
    u_k = -L delta_k
    h_k = q F_k(x)^(q-1) ||u_k||^2 + L F_k(x)^q
    x <- x - sum_k F_k(x)^q u_k / sum_k h_k

Where we differ:
    - Losses get 1e-10 added, as in the authors' code: a loss of zero has no power below one.
    - Algorithm 2 draws client k with odds p_k and then weighs all alike, as the equation does. Clients are
      drawn here as by every other averaging: evenly, or with ``qfedavg+uniform(odds="samples")`` by p_k.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcohort.api import Averaging, Memory, Round, Updates, above, at_least, register, tune

TINY = 1e-10  # as in the authors' code: a loss of zero has no power below one


@register
@dataclass(frozen=True)
class QFedAvg(Averaging):
    """Weighs a client by the q-th power of its loss before training: those badly served count more."""

    q: Annotated[float, at_least(0), tune(1e-3, 5)] = 1.0  # 0 weighs all the same; the larger, the more even
    lipschitz: Annotated[float, above(0)] | None = None  # L of the loss; None: 1 / local learning rate

    def uses(self) -> frozenset[str]:
        return frozenset({"loss_before"})

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        L = self.lipschitz or 1 / now.lr  # noqa: N806
        loss = updates.probes["loss_before"].double() + TINY
        squares = (updates.up["delta"] ** 2).sum(1).double()
        h = self.q * loss ** (self.q - 1) * L**2 * squares + L * loss**self.q
        return L * loss**self.q / h.sum()
