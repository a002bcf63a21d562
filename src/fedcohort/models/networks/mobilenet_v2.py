"""MobileNetV2, FedGWC's network for Landmarks and iNaturalist: Sandler et al., "MobileNetV2: Inverted
Residuals and Linear Bottlenecks", CVPR 2018.

Table 2 of that paper at width 1: 3,504,872 parameters with 1,000 classes. FedGWC starts from weights trained
on ImageNet, which do not come with this library; these weights are random. It halves an image five times: on
32x32 pixels it works, but sees little.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from fedcohort.models import MODELS, ImageModel

# Widening inside the block, channels, blocks, stride of the first block.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@MODELS.register
@dataclass(frozen=True)
class MobileNetV2(ImageModel):
    """Seventeen inverted residual blocks."""

    smallest: ClassVar[int] = 32

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        layers: list[nn.Module] = [_convolution(shape[0], 32, 3, stride=2)]
        channels = 32
        for widen, outputs, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(Inverted(channels, outputs, widen, stride if block == 0 else 1))
                channels = outputs
        top = [_convolution(channels, 1280, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return nn.Sequential(*layers, *top, nn.Linear(1280, classes))


class Inverted(nn.Module):
    """Widen, filter each channel by itself, narrow without a ReLU; add the input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, widen: int, stride: int) -> None:
        super().__init__()
        inside = inputs * widen
        steps = OrderedDict[str, nn.Module]()
        if widen != 1:
            steps["widen"] = _convolution(inputs, inside, 1)
        steps["filter"] = _convolution(inside, inside, 3, stride, groups=inside)
        steps["narrow"] = nn.Sequential(nn.Conv2d(inside, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.steps = nn.Sequential(steps)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        changed: Tensor = self.steps(x)
        return x + changed if self.residual else changed


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(),
    )
