"""How even label counts or class probabilities are."""

import math

import torch
from torch import Tensor

EQUAL = 1e-12  # entropies closer than this are equal


def entropy(mass: Tensor) -> Tensor:
    """In bits, of each row as if it summed to one; 0 for a row of nothing."""
    total = mass.sum(-1, keepdim=True).clamp(min=torch.finfo(mass.dtype).tiny)
    share = mass.clamp(min=0) / total
    return -torch.special.xlogy(share, share).sum(-1) / math.log(2)
