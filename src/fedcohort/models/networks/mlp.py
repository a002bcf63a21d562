"""Multi-layer perceptron with ReLU, of any widths."""

from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Annotated

from torch import nn

from fedcohort.models import MODELS, Model
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least

DEEPEST = 100  # hidden layers; a hundred thousand narrow ones need little memory and many minutes


@MODELS.register
@dataclass(frozen=True)
class MLP(Model):
    """Fully connected layers on the flattened example."""

    widths: tuple[Annotated[int, at_least(1)], ...] = (200, 200)  # of the hidden layers

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(self.widths) > DEEPEST:
            raise UserError(f"mlp: {len(self.widths):,} hidden layers; give at most {DEEPEST}")
        sizes = [prod(shape), *self.widths]
        hidden = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(sizes[-1], classes))
