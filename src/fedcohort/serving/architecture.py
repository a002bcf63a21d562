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
WIDEST = 2**28  # ... of what a layer makes of it: a gigabyte
TENSORS = 2**14  # most of a network


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

    def empty(self, classes: int, net: nn.Module | None = None) -> tuple[nn.Module, int]:
        """The network, to be given its weights, and how many numbers it makes of an example at most. One of
        fedcohort's own takes no memory before, whatever sizes a file names; ValueError if there is none of
        such sizes."""
        if math.prod(self.shape) > EXAMPLE:
            raise ValueError("examples that are too large")
        copies = max(1, self.encoders)
        if net is not None:
            return self._merged([copy.deepcopy(net) for _ in range(copies)], classes), math.prod(self.shape)
        if not self.known:
            own = flat_model(self.name, self.shape, classes, self.settings, self.vocabulary)
            return self._merged([own.build() for _ in range(copies)], classes), math.prod(self.shape)
        try:
            model = build(MODELS.get(self.name), self.settings, "model")
            with torch.device("meta"):
                first = model.network(self.shape, classes, self.vocabulary)
                if copies * len(first.state_dict()) > TENSORS:
                    raise ValueError(f"a network of more than {TENSORS} tensors")
                made = [model.network(self.shape, classes, self.vocabulary) for _ in range(copies - 1)]
                if self.encoders and self.last != _last_linear(first):
                    raise ValueError(f"'{self.last}' is not the last linear layer")
                network = self._merged([first, *made], classes)
                return network, self._widest(network)
        except (UserError, RuntimeError, OverflowError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(str(error)) from None

    def _widest(self, network: nn.Module) -> int:
        """Images become no larger on their way through a network of ours, and texts no longer."""
        sizes = [math.prod(self.shape)]
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                sizes.append(layer.out_channels * math.prod(self.shape[1:]))
            elif isinstance(layer, nn.Embedding):
                sizes.append(layer.embedding_dim * self.shape[0])
            else:
                sizes += [len(own) for own in layer.parameters(recurse=False)]
        if max(sizes) > WIDEST:
            raise ValueError("layers that are too wide")
        return max(sizes)

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


def _last_linear(network: nn.Module) -> str:
    linear = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    return next(reversed(linear), "")
