"""What the VGG networks share: Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale
Image Recognition", ICLR 2015, in the size that is usual for 32x32 images.

Five groups of 3x3 convolutions, each halving the image; the last two groups are eight times as wide as the
first. Images larger than 32x32 are averaged to one pixel before the dense layers, which are as wide as the
last convolution instead of ImageNet's 4,096. Weights start as He et al. (ICCV 2015) propose: from PyTorch's
default, so deep a network without batch normalisation hardly begins to learn.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

from torch import nn

from fedcohort.models import ImageModel
from fedcohort.util.settings import at_least

WIDTHS = (1, 2, 4, 8, 8)  # of the five groups, relative to the first


@dataclass(frozen=True)
class VGG(ImageModel):
    """Groups of convolutions between max-poolings, then three linear layers."""

    smallest: ClassVar[int] = 32
    depths: ClassVar[tuple[int, ...]]  # convolutions in each group

    width: Annotated[int, at_least(1)] = 64  # channels of the first group
    batch_norm: bool = False  # after every convolution

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = []
        channels = shape[0]
        for depth, widen in zip(self.depths, WIDTHS, strict=True):
            wide = self.width * widen
            for inputs, outputs in pairwise([channels, *[wide] * depth]):
                layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
                layers += [nn.BatchNorm2d(outputs), nn.ReLU()] if self.batch_norm else [nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
            channels = wide
        dense = [nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels), nn.ReLU()]
        top = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), *dense, nn.Linear(channels, classes)]
        return _by_he(nn.Sequential(*layers, *top))


def _by_he(network: nn.Sequential) -> nn.Sequential:
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return network
