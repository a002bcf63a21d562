"""Coordinate-wise median: Yin et al., "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates", ICML 2018. https://arxiv.org/abs/1803.01498

Equation:
    x_j <- x_j + median_k delta_kj, for every parameter j

Where we differ:
    - Every client counts once, however many samples it has, as in the paper.
    - Of an even number of clients the median is the mean of the two in the middle, as usual and as in the
      paper's experiments; PyTorch's own would take the lower one.
    - BatchNorm statistics, of which the paper does not speak, are averaged by samples, so that a model with
      BatchNorm is not robust.
"""

from dataclasses import dataclass

from torch import Tensor

from fedcohort.api import Averaging, Updates, register


@register
@dataclass(frozen=True)
class Median(Averaging):
    """Moves every parameter by the median of what clients moved it, which few liars cannot carry away."""

    def combine(self, weights: Tensor, updates: Updates) -> Tensor:
        ranked = updates.up["delta"].sort(0).values
        middle, odd = divmod(len(updates), 2)
        return ranked[middle] if odd else (ranked[middle - 1] + ranked[middle]) / 2
