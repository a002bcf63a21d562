"""The network for Fashion-MNIST in the Clust-PSI-PFL paper: three convolutions of 8, 16 and 32 channels,
max-pooling, and a dense layer of 2,048.

The paper is silent on kernels and padding. As in its authors' code, each 3x3 convolution has no padding and
a 2x2 max-pooling of its own: 93,962 parameters on Fashion-MNIST.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedcohort.models import MODELS, ImageModel


@MODELS.register
@dataclass(frozen=True)
class FMNISTCNN(ImageModel):
    """Three convolutions and one wide dense layer."""

    smallest: ClassVar[int] = 22

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        height, width = [(((side - 2) // 2 - 2) // 2 - 2) // 2 for side in shape[1:]]
        return nn.Sequential(
            nn.Conv2d(shape[0], 8, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(32 * height * width, 2048), nn.ReLU(), nn.Linear(2048, classes),
        )  # fmt: skip
