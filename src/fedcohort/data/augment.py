"""Random changes to training images, so that a client never sees the same picture twice.

The recipe of FedEntOpt: colour jitter, a horizontal flip of every second image, and one image in ten without
colour. Its paper gives no strengths for the jitter; here brightness, contrast and saturation, in this order,
are each multiplied by a number from 0.8 to 1.2, and the hue stays. All of this happens between black and
white, so what loading did to the channels is undone before and done again after.

Every draw comes from the generator of a client's round: engines, workers and restarts change nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedcohort.data.scaling import Scale
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from fedcohort.data.federation import Federation

STRENGTH = 0.2  # of brightness, contrast and saturation
FLIPPED, GREY = 0.5, 0.1  # share of the images
ROUNDING = 1e-5  # of a mean or a variance
LUMA = {1: (1.0,), 3: (0.299, 0.587, 0.114)}  # how bright each channel seems (ITU-R BT.601)


@dataclass(frozen=True)
class Augment:
    """Changes batches of images whose channels were standardised by ``mean`` and ``std``, both [C, 1, 1]."""

    mean: Tensor
    std: Tensor

    def __call__(self, x: Tensor, draw: torch.Generator) -> Tensor:
        """A changed copy of the batch ``[n, C, H, W]``."""
        looks = self.looks([len(x)], draw).to(x.device)
        brightness, contrast, saturation, is_grey, is_mirrored = looks.T[..., None, None, None]
        mean, std = self.mean.to(x.device), self.std.to(x.device)
        x = x * std + mean
        x = adjust_brightness(x, brightness)
        x = adjust_contrast(x, contrast)
        x = adjust_saturation(x, saturation)
        x = torch.where(is_mirrored > 0, x.flip(-1), x)
        x = torch.where(is_grey > 0, grey(x), x)
        return (x - mean) / std

    def looks(self, batches: Iterable[int], draw: torch.Generator) -> Tensor:
        """``[n, 5]`` for images of batches of these sizes: factors of brightness, contrast and saturation,
        and whether (0 or 1) an image loses its colour and is mirrored."""
        drawn = torch.cat([torch.rand(5, size, generator=draw) for size in batches], 1)
        jitter, flip, colour = drawn.split([3, 1, 1])
        return torch.cat([1 + STRENGTH * (2 * jitter - 1), colour < GREY, flip < FLIPPED]).T


def adjust_brightness(x: Tensor, factor: Tensor) -> Tensor:
    return (x * factor).clamp(0, 1)


def adjust_contrast(x: Tensor, factor: Tensor) -> Tensor:
    """Away from the mean grey of each image, or towards it."""
    return _blend(x, grey(x).mean((1, 2, 3), keepdim=True), factor)


def adjust_saturation(x: Tensor, factor: Tensor) -> Tensor:
    """Away from the image without colour, or towards it."""
    return _blend(x, grey(x), factor)


def grey(x: Tensor) -> Tensor:
    """``[n, 1, H, W]``: how bright each pixel seems."""
    weights = torch.tensor(LUMA[x.shape[1]], device=x.device).view(-1, 1, 1)
    return (x * weights).sum(1, keepdim=True)


def _blend(x: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return (factor * x + (1 - factor) * other).clamp(0, 1)


def augmentation(federation: "Federation") -> Augment:
    """For the images of this federation, or a sentence if it holds none."""
    shape = federation.shape
    if len(shape) != 3 or shape[0] not in LUMA:
        raise UserError(
            f"local.augment changes images of one or three channels, not examples of shape {shape}: remove it"
        )
    x, scale = federation.train.x, federation.scale
    if scale is not None and not _of_images(scale):
        raise UserError(
            "local.augment needs images between 0 and 1, and no such images have the means and deviations of "
            "these: give bytes, or scale them and set normalise = false"
        )
    if scale is None and x.numel() and (x.min() < 0 or x.max() > 1):
        raise UserError(
            f"local.augment needs images between 0 and 1, but these run from {x.min():.3g} to {x.max():.3g}: "
            "give bytes and no data.scale = 'client', or scale them and set normalise = false"
        )
    scale = scale or Scale.plain(shape[0])
    return Augment(scale.mean.view(-1, 1, 1), scale.std.view(-1, 1, 1))


def _of_images(scale: Scale) -> bool:
    """Whether numbers between 0 and 1 can have it: their variance is at most mean (1 - mean), as Bhatia and
    Davis showed. A channel of one value has a deviation of 1."""
    mean, std = scale.mean, scale.std
    variance = torch.where(std == 1, 0.0, std.square())
    return bool((variance <= mean * (1 - mean) + ROUNDING).all())
