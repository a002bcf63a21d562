"""The model that serves a client as it is: the setting of McMahan et al., "Communication-Efficient Learning
of Deep Networks from Decentralized Data", AISTATS 2017. https://arxiv.org/abs/1602.05629

Equation:
    y_k = x

Where we differ:
    Nothing known.
"""

from dataclasses import dataclass

from fedcohort.api import Adaptation, register


@register
@dataclass(frozen=True)
class Unchanged(Adaptation):
    """Clients use the model that serves them as it is."""
