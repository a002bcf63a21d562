"""Which network the weights of a model folder are of: one of fedcohort's own, unless the user gives one."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from fedcohort.models import MODELS, flat_model
from fedcohort.models.flat import Flat, Weights
from fedcohort.models.last_layer import last_layer
from fedcohort.util.errors import UserError
from fedcohort.util.settings import between, build
from fedcohort.util.user_code import comes_with_fedcohort

EXAMPLE = 2**24  # most numbers of one example


class Merged(nn.Module):
    """Networks without their last layers side by side, and one linear layer that reads them all."""

    def __init__(self, encoders: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.encoders, self.head = nn.ModuleList(encoders), head

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.head(torch.cat([encoder(x) for encoder in self.encoders], 1))
        return answer


@dataclass(frozen=True)
class Architecture:
    """A network by name; ``encoders`` of them, cut at the layer ``last``, where models were merged."""

    name: str
    settings: dict
    shape: tuple[Annotated[int, between(1, EXAMPLE)], ...]
    vocabulary: Annotated[int, between(0, EXAMPLE)] = 0
    encoders: Annotated[int, between(0, 1000)] = 0
    last: str = ""

    @property
    def known(self) -> bool:
        """Whether it is one of fedcohort's own: others are somebody's code."""
        return comes_with_fedcohort(MODELS, self.name)

    def holding(
        self, model: Flat, weights: Weights, encoders: Sequence[Weights], classes: int
    ) -> tuple["Architecture", nn.Module]:
        """The network with these weights; of merged models, ``weights`` are those of the layer on top."""
        if not encoders:
            return self, model.module_with(weights)
        merged = replace(self, encoders=len(encoders), last=last_layer(model)[0])
        network = merged._merged([model.module_with(each) for each in encoders], classes)
        width = len(encoders) * last_layer(model)[1].in_features
        network.head = flat_model("logistic", (width,), classes).module_with(weights)
        return merged, network.eval()

    def empty(self, classes: int, net: nn.Module | None = None) -> nn.Module:
        """The network, to be given its weights. One of fedcohort's own takes no memory before, whatever sizes
        a file names; ValueError if there is none of such sizes."""
        if math.prod(self.shape) > EXAMPLE:
            raise ValueError("examples that are too large")
        copies = max(1, self.encoders)
        if net is not None:
            return self._merged([copy.deepcopy(net) for _ in range(copies)], classes)
        if not self.known:
            own = flat_model(self.name, self.shape, classes, self.settings, self.vocabulary)
            return self._merged([own.build() for _ in range(copies)], classes)
        try:
            model = build(MODELS.get(self.name), self.settings, "model")
            with torch.device("meta"):
                made = [model.network(self.shape, classes, self.vocabulary) for _ in range(copies)]
                return self._merged(made, classes)
        except (UserError, RuntimeError, OverflowError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(str(error)) from None

    def _merged(self, networks: Sequence[nn.Module], classes: int) -> nn.Module:
        """One network is itself; several are cut at their last layers."""
        if not self.encoders:
            return networks[0]
        layers = [network.get_submodule(self.last) for network in networks]
        if not self.last or not all(isinstance(layer, nn.Linear) for layer in layers):
            raise ValueError(f"'{self.last}' is no linear layer inside the network")
        above, _, own = self.last.rpartition(".")
        for network in networks:
            setattr(network.get_submodule(above), own, nn.Identity())
        width = sum(layer.in_features for layer in layers)  # type: ignore[misc]
        return Merged(networks, nn.Sequential(nn.Flatten(), nn.Linear(width, classes)))
