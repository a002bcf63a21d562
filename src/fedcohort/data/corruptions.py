"""Visual domains: the same picture as a client with a noisy or blurred camera would have taken it."""

import numpy as np
import torch
from torch import Tensor

from fedcohort.data.partition import Domain
from fedcohort.util import keyed
from fedcohort.util.errors import UserError

BLOCK = 1024  # rows whose noise is drawn together


def change_images(x: Tensor, client: np.ndarray, domains: tuple[Domain, ...], seed: int, part: str) -> Tensor:
    """A copy of ``x`` where each row looks as its client's domain says; client -1 is nobody."""
    if x.dim() != 4:
        raise UserError(
            f"visual domains need images of shape (channels, height, width), not {tuple(x.shape[1:])}: "
            "use an image source or another partition"
        )
    out = x.clone()
    blurs = np.array([domain.blur for domain in domains] + [0.0])[client]  # index -1: the appended zero
    for radius in np.unique(blurs[blurs > 0]):
        rows = torch.from_numpy(np.flatnonzero(blurs == radius))
        out[rows] = blur(out[rows], float(radius))
    sigmas = np.array([domain.noise for domain in domains] + [0.0])[client]
    if sigmas.any():
        add_noise(out, torch.from_numpy(sigmas).float(), seed, part)
    return out


def blur(x: Tensor, radius: float) -> Tensor:
    """Gaussian blur of standard deviation ``radius`` pixels over height and width."""
    from scipy.ndimage import gaussian_filter

    return torch.from_numpy(gaussian_filter(x.numpy(), sigma=(0, 0, radius, radius), mode="nearest"))


def add_noise(x: Tensor, sigma: Tensor, seed: int, part: str) -> None:
    """Add Gaussian noise in place. A row's noise depends on its number alone, not on who else is noisy."""
    for block, start in enumerate(range(0, len(x), BLOCK)):
        rows = slice(start, start + BLOCK)
        if sigma[rows].any():
            draw = keyed.generator(seed, "noise", part, block)
            noise = torch.randn((BLOCK, *x.shape[1:]), generator=draw)[: len(x[rows])]
            x[rows] += sigma[rows].view(-1, 1, 1, 1) * noise
