"""The network for CIFAR in the FedGWC paper: "a CNN with two convolutional blocks and three dense layers".

Its widths are those of the authors' code: two 5x5 convolutions of 64 filters, each with 2x2 max-pooling, and
dense layers of 384 and 192. 815,332 parameters on CIFAR-100.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from fedcohort.models import MODELS, ImageModel


@MODELS.register
@dataclass(frozen=True)
class FedGWCCNN(ImageModel):
    """Two convolutions and three linear layers, wider than LeNet-5's."""

    smallest: ClassVar[int] = 16

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        height, width = [((side - 4) // 2 - 4) // 2 for side in shape[1:]]
        return nn.Sequential(
            nn.Conv2d(shape[0], 64, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(64 * height * width, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(),
            nn.Linear(192, classes),
        )  # fmt: skip
