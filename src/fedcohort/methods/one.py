"""One model for everybody: the setting of McMahan et al., "Communication-Efficient Learning of Deep
Networks from Decentralized Data", AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    group(k) = 0 for every client k

Where we differ:
    Nothing known.
"""

from dataclasses import dataclass

from fedcohort.api import Grouping, register


@register
@dataclass(frozen=True)
class One(Grouping):
    """All clients share one model."""
