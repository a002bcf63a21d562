"""Where a network divides: an encoder, and the linear layer that it ends with."""

import torch
from torch import nn

from fedcohort.models.flat import Flat, Weights
from fedcohort.util.errors import UserError


def last_layer(model: Flat) -> tuple[str, nn.Linear]:
    """The linear layer that a network ends with, and its name."""
    layer = None if model.ends_with is None else model.module.get_submodule(model.ends_with)
    if model.ends_with is None or not isinstance(layer, nn.Linear):
        found = "no layer of its own" if layer is None else type(layer).__name__
        raise UserError(
            f"a network can only be cut before a linear layer, but this one ends with {found}: "
            "make an nn.Linear its last part"
        )
    return model.ends_with, layer


def encoder(model: Flat, weights: Weights) -> Weights:
    """A network without that layer, as it travels."""
    return weights._replace(params=weights.params[~model.within([last_layer(model)[0]])])


def completed(model: Flat, encoder: Weights) -> Weights:
    """The inverse, with a last layer that gives nothing but zeros."""
    params = torch.zeros(model.num_params)
    params[~model.within([last_layer(model)[0]])] = encoder.params
    return encoder._replace(params=params)
