"""Where a network divides: an encoder, and the linear layer that it ends with."""

from torch import nn

from fedcohort.core.flat import Flat, Weights
from fedcohort.errors import UserError


def last_layer(model: Flat) -> tuple[str, nn.Linear]:
    """The linear layer that a network ends with, and its name."""
    leaves = [(name, part) for name, part in model.module.named_modules() if not list(part.children())]
    name, layer = leaves[-1]
    if not isinstance(layer, nn.Linear):
        raise UserError(
            f"models can only be merged at a linear layer, but this one ends with {type(layer).__name__}: "
            "make an nn.Linear its last part"
        )
    return name, layer


def encoder_bytes(model: Flat, weights: Weights) -> int:
    """What an encoder takes on the wire."""
    _, layer = last_layer(model)
    return weights.bytes - sum(p.numel() * p.element_size() for p in layer.parameters())
