"""FedProx: Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.
https://arxiv.org/abs/1812.06127

Equation:
    minimise F_k(y) + (mu / 2) ||y - x||^2, from the sent model x:
    y <- y - lr (grad F_k(y) + mu (y - x))

Where we differ:
    The paper draws clients by their samples and averages evenly; here, as in its code and experiments,
    clients are drawn uniformly and weigh by their samples.
"""

from dataclasses import dataclass
from typing import Annotated

from fedcohort.api import Anchor, Objective, View, at_least, register, tune


@register
@dataclass(frozen=True)
class FedProx(Objective):
    """Adds (mu / 2) ||x - sent model||^2 to each client's loss, so that clients do not drift apart."""

    mu: Annotated[float, at_least(0), tune(1e-4, 1)] = 0.01  # strength of the pull towards the sent model

    def anchor(self, view: View) -> Anchor:
        return Anchor(pull=self.mu)
