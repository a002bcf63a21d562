"""A Gaussian over clients: their values vary together as far as their embeddings point the same way.

The covariance of clients with embeddings ``x [N, D]`` is ``x x^T + noise^2 I`` (a linear kernel, and what is
each client's own). :func:`fit` moves embeddings towards those that make observed values likely.
"""

import torch
from torch import Tensor

from fedcohort.core.optimiser import Optimiser
from fedcohort.core.profile import Local


def covariance(x: Tensor, noise: float) -> Tensor:
    """``[N, N]``."""
    return x @ x.t() + noise**2 * torch.eye(len(x), dtype=x.dtype)


def surprise(x: Tensor, values: Tensor, weight: Tensor, noise: float) -> Tensor:
    """Minus the log-likelihood of ``values [T, N]``, each row by its ``weight``, up to a constant.

    A value that is not finite was not observed: its row counts with the clients that have one.
    """
    total = x.new_zeros(())
    patterns, which = values.isfinite().unique(dim=0, return_inverse=True)
    for number, told in enumerate(patterns):
        if not told.any():
            continue
        root = torch.linalg.cholesky(covariance(x[told], noise))
        rows = which == number
        white = torch.linalg.solve_triangular(root, values[rows][:, told].t(), upper=False)
        each = white.pow(2).sum(0) / 2 + root.diagonal().log().sum()
        total = total + weight[rows] @ each
    return total


def fit(x: Tensor, values: Tensor, weight: Tensor, noise: float, steps: int, lr: float) -> Tensor:
    """Embeddings after so many of Adam's steps from ``x``, under which the values are likelier."""
    x = x.clone().requires_grad_()
    adam = Optimiser(Local(optimiser="adam"), x.detach())
    for _ in range(steps if values.isfinite().any() else 0):
        (slope,) = torch.autograd.grad(surprise(x, values, weight, noise), x)
        with torch.no_grad():
            adam.step(x, slope, lr)
    return x.detach()
