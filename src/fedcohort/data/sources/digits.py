"""1,797 handwritten digits of 8 x 8 pixels, which scikit-learn carries along: the default, no download."""

from dataclasses import dataclass

import torch

from fedcohort.data.dataset import Dataset
from fedcohort.data.locate import Places
from fedcohort.data.sources import register


@register
@dataclass(frozen=True)
class Digits:
    """UCI Optical Recognition of Handwritten Digits (test part), scaled to [0, 1]."""

    def load(self, where: Places) -> Dataset:
        from sklearn.datasets import load_digits

        bunch = load_digits()
        x = torch.from_numpy(bunch.images).float().div(16).unsqueeze(1)
        y = torch.from_numpy(bunch.target).long()
        return Dataset(x, y, tuple(str(digit) for digit in range(10)), provenance={"source": "digits"})
