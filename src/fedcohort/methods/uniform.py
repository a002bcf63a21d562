"""Uniform client sampling: McMahan et al., "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    P(cohort = A) = 1 / (K choose m) for every A of m clients

Where we differ:
    Nothing known. ``odds="samples"`` draws clients one after the other with odds n_k, as q-FedAvg's Algorithm
    2 does; the "rand" that Power-of-Choice is compared with does so with replacement, which no cohort of
    distinct clients can.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from fedcohort.api import Ids, Memory, Round, Selector, register


@register
@dataclass(frozen=True)
class Uniform(Selector):
    """Every subset of the wanted size is equally likely, unless the grouping gives its members odds."""

    heeds_odds: ClassVar[bool] = True

    odds: Literal["even", "samples"] = "even"  # how likely a client is to be drawn: like all, or by its data

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return now.draw("select", now.profile.size[now.members] if self.odds == "samples" else None)
