"""Plain local training: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    x <- x - lr grad F_k(x), T_k mini-batches long, from the sent model

Where we differ:
    Any local optimiser may take these steps; its momentum and moments start at zero in every round.
"""

from dataclasses import dataclass

from fedcohort.api import Objective, register


@register
@dataclass(frozen=True)
class Plain(Objective):
    """Each client minimises the cross-entropy of its own data, nothing else."""
