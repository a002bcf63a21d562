"""VGG-11 (configuration A), FedEntOpt's larger network.

The FedEntOpt paper says neither how wide its VGG-11 is nor whether it normalises, only that it has over four
million parameters. The usual widths have 9,750,922 on CIFAR-10; ``width = 42`` has 4,201,774. Without batch
normalisation, as in the original.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.models import MODELS
from fedcohort.models.networks._vgg import VGG


@MODELS.register
@dataclass(frozen=True)
class VGG11(VGG):
    """Eight convolutions and three linear layers."""

    depths: ClassVar[tuple[int, ...]] = (1, 1, 2, 2, 2)
