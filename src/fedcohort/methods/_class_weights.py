"""What balanced and focal share: how much a sample of each class counts at a client."""

import torch
from torch import Tensor

from fedcohort.api import View


def class_weights(view: View) -> Tensor:
    """``[C]``: inverse to the client's own samples of a class, so that all classes that it holds count alike
    and a sample counts 1 on average; 0 for a class that it does not hold."""
    held = view.counts > 0
    even = view.counts.sum() / held.sum()
    return torch.where(held, even / view.counts.clamp(min=1), 0.0).float()
