"""Noise on tables of counts, so that nobody can tell from them what any one sample is.

How many samples a client has is known to everybody. Two clients that must not be told apart differ in what
one of their samples is: one count is smaller by one, another larger. So the sensitivity is 2, and Laplace
noise of scale 2 / epsilon gives epsilon-differential privacy. Whole numbers get whole noise (the discrete
Laplace distribution): the last bits of a floating-point draw would betray what it was added to.
"""

import math

import torch
from torch import Tensor

from fedcohort.util.keyed import Key, numpy_generator

SENSITIVITY = 2


def simulated_noise(table: Tensor, epsilon: float, seed: int, *key: Key) -> Tensor:
    """What a simulated client adds to its table: a draw that the key repeats. Never for real clients."""
    random, scale = numpy_generator(seed, *key), SENSITIVITY / epsilon
    if table.is_floating_point():
        return torch.from_numpy(random.laplace(0, scale, tuple(table.shape)))
    more, less = random.geometric(-math.expm1(-1 / scale), (2, *table.shape))
    return torch.from_numpy(more - less)


def tidied(noised: Tensor, size: int) -> Tensor:
    """A noised table as it is told: nothing below zero, and all of it together the number of samples.

    Both are known anyway, so this costs no privacy. Where the noise left nothing, every cell is as likely.
    """
    kept = noised.double().clamp(min=0)
    total = kept.sum()
    return kept * (size / total) if total > 0 else torch.full_like(kept, size / kept.numel())
