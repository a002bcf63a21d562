"""A part of a data set, for trials that must not take long."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fedcohort.data.dataset import Dataset
from fedcohort.data.splitting import rank_within
from fedcohort.util.keyed import numpy_generator


def thinned(dataset: Dataset, share: float) -> Dataset:
    """A share of the rows of each class, of training and test rows alike and at least one: the same rows
    whatever the seed of a run, and those of a smaller share are among those of a larger one."""
    if share == 1:
        return dataset

    def kept(labels: torch.Tensor, purpose: str) -> np.ndarray:
        y = labels.numpy()
        rank = rank_within(y, numpy_generator(0, "share", purpose).random(len(y)))
        return np.flatnonzero(rank < np.ceil(share * np.bincount(y))[y])

    parts: dict[str, Any] = {"provenance": {**dataset.provenance, "share": share}}
    for purpose, prefix in (("train", ""), ("test", "test_")):
        labels = getattr(dataset, f"{prefix}y")
        if labels is not None:
            rows = kept(labels, purpose)
            owner = getattr(dataset, f"{prefix}owner")
            parts[f"{prefix}owner"] = None if owner is None else owner[rows]
            for name in ("x", "y"):
                parts[f"{prefix}{name}"] = getattr(dataset, f"{prefix}{name}")[torch.from_numpy(rows)]
    return replace(dataset, **parts)
