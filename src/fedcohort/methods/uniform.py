"""Uniform client sampling: McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    P(cohort = A) = 1 / (K choose m) for every A of m clients

Where we differ:
    Nothing known. The "rand" that Power-of-Choice is compared with draws by samples and with replacement;
    ``power_of_choice(variant="rpow-d", d=m)`` draws a cohort of m by samples without, and asks nobody.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcohort.core.method import register
from fedcohort.core.parts import Ids, Memory, Round, Selector


@register
@dataclass(frozen=True)
class Uniform(Selector):
    """Every subset of the wanted size is equally likely, unless the grouping gives its members odds."""

    heeds_odds: ClassVar[bool] = True

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return now.draw("select")
