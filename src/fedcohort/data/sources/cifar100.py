"""CIFAR-100: 60,000 colour images of 32 x 32 pixels in 100 classes, or in their 20 superclasses.

Krizhevsky: Learning Multiple Layers of Features from Tiny Images (2009).
"""

from dataclasses import dataclass
from typing import Literal

from fedcohort.data.cifar_files import CIFAR100 as LAYOUT
from fedcohort.data.cifar_files import read_cifar
from fedcohort.data.dataset import Dataset
from fedcohort.data.images import read_images
from fedcohort.data.labels import encode_labels
from fedcohort.data.locate import DataPath, Places
from fedcohort.data.sources import register

OFFICIAL = (50_000, 10_000)
FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel
can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion
lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree
pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea
seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank
telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""
COARSE = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes
large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals
trees vehicles_1 vehicles_2
"""


@register
@dataclass(frozen=True)
class CIFAR100:
    """50,000 training and 10,000 test images."""

    path: DataPath | None = None  # the folder, if not below the data root
    labels: Literal["fine", "coarse"] = "fine"
    normalise: bool = True

    def load(self, where: Places) -> Dataset:
        (images, labels), (test_images, test_labels), _ = read_cifar(where.at(self.path), LAYOUT)
        x, test_x, numbers = read_images(images, test_images, self.normalise)
        column = f"{self.labels}_labels"
        classes = tuple((FINE if self.labels == "fine" else COARSE).split())
        y, test_y, names = encode_labels(labels[column], test_labels[column], classes)
        story = {"source": "cifar100", "labels": self.labels, "normalised": self.normalise}
        if (len(images), len(test_images)) != OFFICIAL:
            story["subset"] = f"{len(images)} of 50000 training and {len(test_images)} of 10000 test images"
        return Dataset(x, y, names, test_x, test_y, provenance=story, numbers=numbers)
