"""Gaussians over clients.

One in which values vary together as far as clients' embeddings point the same way: the covariance of clients
with embeddings ``x [N, D]`` is ``x x^T + noise^2 I`` (a linear kernel, and what is each client's own).
:func:`fit` moves embeddings towards those that make observed values likely, :func:`most_telling` chooses whom
the others depend on. And one in which clients are alike: :func:`typical` says how far each is.
"""

import torch
from torch import Tensor

from fedcohort.util.descent import Rule, first_memory, take_step

TOLERANCE = 1e-12  # scores closer than this are equal, variances below it are none


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
    """Embeddings after this many of Adam's steps from ``x``, under which the values are likelier."""
    x = x.clone().requires_grad_()
    adam = Rule(lr, adam=True)
    memory = first_memory(adam, x.detach())
    for number in range(1, 1 + (steps if values.isfinite().any() else 0)):
        (slope,) = torch.autograd.grad(surprise(x, values, weight, noise), x)
        with torch.no_grad():
            take_step(adam, x, slope, memory, number)
    return x.detach()


def centred(values: Tensor, weight: Tensor) -> Tensor:
    """``values [T, N]`` less each client's mean over those observed, by the rows' ``weight``."""
    there = values.isfinite() * weight[:, None]
    return values - (values.nan_to_num() * there).sum(0) / there.sum(0).clamp(min=TOLERANCE)


def most_telling(covariance: Tensor, share: Tensor, discount: Tensor, count: int) -> list[int]:
    """One by one, whose covariance with everybody is largest per standard deviation; then condition on it."""
    left, chosen = covariance.clone(), list[int]()
    for _ in range(count):
        score = telling(left, share, discount)
        score[chosen] = -torch.inf
        if score.max() == -torch.inf:
            break
        best = int((score >= score.max() - TOLERANCE).nonzero()[0])
        chosen.append(best)
        left = left - torch.outer(left[best], left[best]) / left[best, best]
    return chosen


def telling(covariance: Tensor, share: Tensor, discount: Tensor) -> Tensor:
    """``[N]``: each one's covariance with everybody by ``share``, per standard deviation, times ``discount``.
    Minus infinity for who has no variance."""
    variance = covariance.diagonal()
    score = discount * (share @ covariance) / variance.clamp(min=TOLERANCE).sqrt()
    return torch.where(variance > TOLERANCE, score, -torch.inf)


def typical(trace: Tensor, share: Tensor | None = None, draws: Tensor | None = None) -> Tensor:
    """How typical each client's losses are: mean over steps of exp(-(loss - mean)^2 / (2 variance)).

    ``trace`` is ``[m, S]``, NaN after a client's last step; a step counts if at least three clients (or
    all) took it. With ``share [m]`` mean and variance weigh clients by it. With ``draws [n, S]``, standard
    normal, both are of the losses and of n more from a Gaussian that looks like them.
    """
    losses = trace.double()
    counts = (~losses.isnan()).sum(0) >= min(3, len(trace))
    losses = losses[:, counts]
    mean, variance = moments(losses, share)
    if draws is not None:
        mean, variance = moments(torch.cat([losses, mean + variance.sqrt() * draws[:, counts].double()]))
    reward = torch.where(variance > 0, torch.exp(-(losses - mean).pow(2) / (2 * variance)), 1.0)
    there = ~losses.isnan()
    return (reward.nan_to_num() * there).sum(1) / there.sum(1).clamp(min=1)


def typical_shares(trace: Tensor, share: Tensor, padding: int, draw: torch.Generator) -> Tensor:
    """What each client has of the cohort's typicality, with clients weighed by ``share`` and so many values
    drawn beside the losses."""
    draws = torch.randn(padding, trace.shape[1], generator=draw) if padding else None
    reward = typical(trace, share, draws)
    return reward / reward.sum().clamp(min=TOLERANCE)


def moments(values: Tensor, share: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and sample variance of each column, NaN left out; with ``share`` of the rows, those it weighs."""
    weight = (~values.isnan()).double()
    if share is not None:
        weight = weight * share.double()[:, None]
    total = weight.sum(0)
    mean = (weight * values.nan_to_num()).sum(0) / total
    squares = (weight * (values - mean).nan_to_num().pow(2)).sum(0)
    return mean, squares / (total if share is not None else total - 1)
