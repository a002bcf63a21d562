"""Logistic regression: one linear layer on the flattened example."""

from dataclasses import dataclass
from math import prod

from torch import nn

from fedcohort.models import MODELS, Model


@MODELS.register
@dataclass(frozen=True)
class Logistic(Model):
    """A single linear layer."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
