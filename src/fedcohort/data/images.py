"""Pixels into float32 tensors on the scale [0, 1]."""

import numpy as np
import torch
from torch import Tensor

from fedcohort.util.errors import UserError


def read_images(
    train: np.ndarray, test: np.ndarray | None, normalise: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Both parts, [n, channels, height, width] bytes, as tensors; and which channels are to be scaled."""
    for part in (train, test):
        if part is not None and (part.dtype != np.uint8 or part.ndim != 4):
            raise UserError(f"images must be bytes of shape (n, channels, height, width), not {part.shape}")
        if part is not None and (0 in part.shape[1:] or part.shape[1:] != train.shape[1:]):
            raise UserError(
                f"images have the shapes {train.shape} and {part.shape}: give pictures of one size"
            )
    if len(train) == 0:
        raise UserError("there is no image to train on: check that the files hold some")
    numbers = torch.ones(train.shape[1], dtype=torch.bool) if normalise else None
    return _tensor(train), None if test is None else _tensor(test), numbers


def _tensor(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images.astype(np.float32)).div_(255)
