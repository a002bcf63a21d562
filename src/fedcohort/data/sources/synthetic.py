"""Gaussian blobs, one per class: no download, any size, as easy or hard as wanted."""

from dataclasses import dataclass
from typing import Annotated

import torch

from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import Places
from fedcohort.data.sources import register
from fedcohort.util import keyed
from fedcohort.util.memory_limit import refuse_beyond
from fedcohort.util.settings import above, at_least, between


@register
@dataclass(frozen=True)
class Synthetic:
    """Class centres drawn from a standard normal, examples around them."""

    samples: Annotated[int, at_least(2)] = 2000
    classes: Annotated[int, between(2, 10_000)] = 10
    features: Annotated[int, at_least(1)] = 20
    spread: Annotated[float, above(0)] = 1.0  # standard deviation of a class; 1 is moderately hard
    seed: int = 0

    def load(self, where: Places) -> Dataset:
        cells = self.samples * (self.features + 2) + self.classes * self.features
        refuse_beyond(
            5 * 4 * cells, "the data set", "lower 'samples' or 'features'"
        )  # centres, noise as drawn and as wide as wanted, their sum, and that scaled
        draw = keyed.generator(self.seed, "synthetic")
        centres = torch.randn(self.classes, self.features, generator=draw)
        y = torch.arange(self.samples) % self.classes
        y = y[torch.randperm(self.samples, generator=draw)]
        x = centres[y] + self.spread * torch.randn(self.samples, self.features, generator=draw)
        names = tuple(str(label) for label in range(self.classes))
        return Dataset(x, y, names, provenance={"source": "synthetic", **vars(self)})
