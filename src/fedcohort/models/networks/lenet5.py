"""LeNet-5 for 28x28 or 32x32 images: LeCun et al., "Gradient-Based Learning Applied to Document
Recognition", 1998.

ReLU and max-pooling as in today's federated learning papers: 62,006 parameters on CIFAR-10, 61,706 on MNIST.
"""

from dataclasses import dataclass

from torch import nn

from fedcohort.models import MODELS, Model
from fedcohort.util.errors import UserError


@MODELS.register
@dataclass(frozen=True)
class LeNet5(Model):
    """Two convolutions and three linear layers."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or shape[1:] not in ((28, 28), (32, 32)):
            raise UserError(
                f"lenet5 takes images of 28x28 or 32x32 pixels, not examples of shape {shape}: use mlp"
            )
        padding = 2 if shape[1] == 28 else 0
        return nn.Sequential(
            nn.Conv2d(shape[0], 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, classes),
        )  # fmt: skip
