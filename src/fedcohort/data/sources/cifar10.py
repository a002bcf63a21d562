"""CIFAR-10: 60,000 colour images of 32 x 32 pixels.

Krizhevsky: Learning Multiple Layers of Features from Tiny Images (2009).
"""

from dataclasses import dataclass

from fedcohort.data.cifar_files import CIFAR10 as LAYOUT
from fedcohort.data.cifar_files import read_cifar
from fedcohort.data.dataset import Dataset
from fedcohort.data.images import read_images
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@register
@dataclass(frozen=True)
class CIFAR10:
    """50,000 training and 10,000 test images in 10 classes."""

    path: DataPath | None = None  # the folder, if not below the data root
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        (images, labels), (test_images, test_labels), _ = read_cifar(where.at(self.path), LAYOUT)
        x, test_x, numbers = read_images(images, test_images, self.normalise)
        y, test_y, names = encode_labels(labels["labels"], test_labels["labels"], CLASSES)
        story = {"source": "cifar10", "normalised": self.normalise}
        return Dataset(x, y, names, test_x, test_y, provenance=story, numbers=numbers)
