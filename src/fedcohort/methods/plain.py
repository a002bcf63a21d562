"""Plain local training: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data", AISTATS 2017. https://arxiv.org/abs/1602.05629"""

from dataclasses import dataclass

from fedcohort.core.method import register
from fedcohort.core.parts import Objective


@register
@dataclass(frozen=True)
class Plain(Objective):
    """Each client minimises the cross-entropy of its own data, nothing else."""
