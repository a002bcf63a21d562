"""Arrays and texts into feature tensors, for sources whose data come in no fixed layout."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedcohort.data.images import read_images
from fedcohort.util.errors import UserError


def numbers_of(
    train: np.ndarray, test: np.ndarray | None, normalise: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Bytes of rank 3 or 4 are images; other numbers stay as they are. And which columns or channels (axis 1)
    are to be scaled."""
    for part in (train, test):
        if part is not None and part.dtype.kind not in "biuf":
            raise UserError(f"examples are of type {part.dtype}, not numbers: convert them first")
        if part is not None and (part.ndim == 0 or part.shape[1:] != train.shape[1:]):
            raise UserError(f"examples have the shapes {train.shape} and {part.shape}: prepare both alike")
        if part is not None and 0 in part.shape[1:]:
            raise UserError(f"examples of shape {part.shape[1:]} hold nothing: give at least one number each")
    if train.dtype == np.uint8 and train.ndim in (3, 4):
        pair = [
            None if part is None else (part[:, None] if part.ndim == 3 else part) for part in (train, test)
        ]
        assert pair[0] is not None  # noqa: S101  # train is not
        return read_images(pair[0], pair[1], normalise)
    if train.ndim == 1:
        train, test = train[:, None], None if test is None else test[:, None]
    x = torch.from_numpy(train.astype(np.float32))
    test_x = None if test is None else torch.from_numpy(test.astype(np.float32))
    return x, test_x, torch.ones(x.shape[1], dtype=torch.bool) if normalise else None


def hash_texts(texts: Sequence[str], width: int) -> np.ndarray:
    """Bag of words of each text, hashed into ``width`` columns: no vocabulary leaves a client."""
    from sklearn.feature_extraction.text import HashingVectorizer

    hasher = HashingVectorizer(n_features=width, alternate_sign=False, norm="l2", dtype=np.float32)
    return hasher.transform(texts).toarray()
