"""FedAvg: McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    x <- x + sum_k p_k delta_k

Where we differ:
    Nothing known.
"""

from dataclasses import dataclass

from fedcohort.api import Averaging, register


@register
@dataclass(frozen=True)
class FedAvg(Averaging):
    """The mean of the clients' movements, weighted by their samples."""
