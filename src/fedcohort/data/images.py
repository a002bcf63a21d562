"""Pixels into float32 tensors: [0, 1], then each channel standardised by the training images."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedcohort.errors import UserError


def scale_images(
    train: np.ndarray, test: np.ndarray | None, normalise: bool
) -> tuple[Tensor, Tensor | None, dict[str, Any]]:
    """Both parts, [n, channels, height, width] bytes, as tensors; and the statistics that were used."""
    for part in (train, test):
        if part is not None and (part.dtype != np.uint8 or part.ndim != 4):
            raise UserError(f"images must be bytes of shape (n, channels, height, width), not {part.shape}")
        if part is not None and (0 in part.shape[1:] or part.shape[1:] != train.shape[1:]):
            raise UserError(
                f"images have the shapes {train.shape} and {part.shape}: give pictures of one size"
            )
    if len(train) == 0:
        raise UserError("there is no image to train on: check that the files hold some")
    if not normalise:
        return _tensor(train), None if test is None else _tensor(test), {"normalised": False}
    mean, std = channel_statistics(train)
    story = {"normalised": True, "mean": mean.round(6).tolist(), "std": std.round(6).tolist()}
    return _tensor(train, mean, std), None if test is None else _tensor(test, mean, std), story


def channel_statistics(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each channel on the scale [0, 1], exact: bytes are counted, not summed."""
    levels = np.arange(256) / 255
    share = [
        np.bincount(images[:, c].ravel(), minlength=256) / images[:, c].size for c in range(images.shape[1])
    ]
    mean = np.array([s @ levels for s in share])
    std = np.sqrt(np.array([s @ (levels - m) ** 2 for s, m in zip(share, mean, strict=True)]))
    return mean, np.where(std > 0, std, 1.0)


def _tensor(images: np.ndarray, mean: np.ndarray | None = None, std: np.ndarray | None = None) -> Tensor:
    out = torch.from_numpy(images.astype(np.float32)).div_(255)
    if mean is not None and std is not None:
        out.sub_(torch.from_numpy(mean).float().view(1, -1, 1, 1)).div_(
            torch.from_numpy(std).float().view(1, -1, 1, 1)
        )
    return out
