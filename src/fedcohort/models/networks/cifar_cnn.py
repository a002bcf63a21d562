"""The network for CIFAR-10 in the Clust-PSI-PFL paper: three blocks of two 3x3 convolutions (32, 64 and 128
filters) with batch normalisation, 2x2 max-pooling and dropout (0.2, 0.3 and 0.4), then a dense layer of 128
with batch normalisation and dropout of 0.5.

Normalisation follows the ReLU, in the order in which the paper lists them. 551,722 trainable parameters on
CIFAR-10.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedcohort.models import MODELS, ImageModel

BLOCKS = ((32, 0.2), (64, 0.3), (128, 0.4))  # filters, dropout


@MODELS.register
@dataclass(frozen=True)
class CIFARCNN(ImageModel):
    """Three double convolutions with batch normalisation and dropout."""

    smallest: ClassVar[int] = 8

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = []
        channels, height, width = shape
        for filters, dropout in BLOCKS:
            for inputs in (channels, filters):
                layers += [nn.Conv2d(inputs, filters, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(filters)]
            layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
            channels, height, width = filters, height // 2, width // 2
        dense = [nn.Linear(channels * height * width, 128), nn.ReLU(), nn.BatchNorm1d(128), nn.Dropout(0.5)]
        return nn.Sequential(*layers, nn.Flatten(), *dense, nn.Linear(128, classes))
