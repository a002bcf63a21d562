"""VGG-19 (configuration E), CAFA's network; with batch normalisation as in its authors' code.

20,565,834 parameters on CIFAR-10.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.models import MODELS
from fedcohort.models.networks._vgg import VGG


@MODELS.register
@dataclass(frozen=True)
class VGG19(VGG):
    """Sixteen convolutions with batch normalisation and three linear layers."""

    depths: ClassVar[tuple[int, ...]] = (2, 2, 4, 4, 4)

    batch_norm: bool = True  # after every convolution
