"""FedNova: Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization", NeurIPS 2020. https://arxiv.org/abs/2007.07481

The weights sum to E[r] E[1 / r] >= 1, a hidden server learning rate that grows with the spread of local work;
``tau_eff="harmonic"`` has none.

Equation:
    x <- x + (sum_j p_j r_j) sum_k p_k delta_k / r_k,  r_k = lr ||a_k||_1

Where we differ:
    - r_k is the reach of the local optimiser, found by pushing a constant gradient of 1 through it: exact
      also for momentum together with a proximal pull, where the authors' code adds both recursions. Adam's
      steps are not linear, so with local Adam r_k is lr T_k.
    - Shares are those of the clients that answered; the authors' code has all clients in every round.
    - The server's momentum of the authors' code is ``fednova+fedavgm``.
    - With a proximal pull the authors' code steps by ``lr sum_j p_j T_j``: ``tau_eff="steps"``.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fedcohort.api import Averaging, Memory, Round, Updates, register


@register
@dataclass(frozen=True)
class FedNova(Averaging):
    """Divides each client's movement by how far its local steps could reach, so that busy clients do not
    pull the mean."""

    tau_eff: Literal["mean", "harmonic", "steps"] = "mean"  # length of the common step; "steps": as if SGD

    def uses(self) -> frozenset[str]:
        return frozenset({"steps"})

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        share, reach = updates.shares.double(), updates.reach.double()
        if self.tau_eff == "mean":
            length = share @ reach
        elif self.tau_eff == "harmonic":
            length = 1 / (share / reach).sum()
        else:  # the authors' code, where clients have a proximal pull
            length = now.lr * (share @ updates.steps.double())
        return share * length / reach
