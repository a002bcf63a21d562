"""Steps that several protocols share: from counts to rows, and fair rounding."""

from itertools import pairwise

import numpy as np

from fedcohort.data.partition import Rows


def rows_by_client(owner: np.ndarray, clients: int) -> list[Rows]:
    """Row positions of each client, given each row's client (-1: nobody's)."""
    order = np.argsort(owner, kind="stable")
    ends = np.searchsorted(owner[order], np.arange(clients + 1))
    return [order[start:stop] for start, stop in pairwise(ends)]


def deal_counts(labels: np.ndarray, counts: np.ndarray, rng: np.random.Generator) -> list[Rows]:
    """Random rows such that client k holds ``counts[k, c]`` examples of class c; the others are nobody's."""
    clients = len(counts)
    owner = np.full(len(labels), -1, dtype=np.int64)
    for label in range(counts.shape[1]):
        rows = rng.permutation(np.flatnonzero(labels == label))
        taken = int(counts[:, label].sum())
        owner[rows[:taken]] = np.repeat(np.arange(clients), counts[:, label])
    return rows_by_client(owner, clients)


def apportion(weights: np.ndarray, totals: np.ndarray, rng: np.random.Generator | np.ndarray) -> np.ndarray:
    """Whole numbers that sum to ``totals[i]`` in row i and follow ``weights[i]``: largest remainders.

    Equal remainders are settled at random: a fixed order would starve the last classes of every client.
    A row without weight gets nothing. ``rng`` may be the random numbers themselves.
    """
    weights = np.asarray(weights, dtype=np.int64)
    mass = weights.sum(axis=1, keepdims=True)
    totals = np.where(mass[:, 0] > 0, totals, 0)[:, None].astype(np.int64)
    share, remainder = np.divmod(weights * totals, np.maximum(mass, 1))  # exact: ties are true ties
    remainder = np.where(weights > 0, remainder, -1)
    draw = rng if isinstance(rng, np.ndarray) else rng.random(weights.shape)
    order = np.lexsort((draw, -remainder), axis=1)
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.broadcast_to(np.arange(weights.shape[1]), order.shape), axis=1)
    return share + (rank < totals - share.sum(axis=1, keepdims=True))


def equal_sizes(examples: int, clients: int) -> np.ndarray:
    """Sizes that differ by one at most and use every example."""
    return examples // clients + (np.arange(clients) < examples % clients).astype(np.int64)
