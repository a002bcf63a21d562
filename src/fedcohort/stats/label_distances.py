"""How far clients' label distributions lie from each other, in one number or one per client.

Everything starts from ``counts``, the K x C table of label counts (one row per client). A client without
samples has no distribution: its row is NaN in per-client results and it takes no part in any summary. No
function builds a K x K matrix except :func:`hellinger_matrix`, whose result is one.
"""

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest

Array = NDArray[np.float64]
Smoothing = Literal["eps", "laplace"]

EPS = (
    1e-6  # what Clust-PSI-PFL's authors add to both sides; it sets the scale of PSI when classes are missing
)
PSEUDO_COUNT = 0.5  # Jeffreys' prior, for ``smoothing="laplace"``
PIECE = 1 << 16  # clients at a time, where only a sum over classes is wanted


class SizeImbalance(NamedTuple):
    """How unequal client sizes are: the extreme pair and the whole federation."""

    ratio: float  # largest over smallest size; 1 when all are equal
    gini: float  # 0 when all are equal, (K-1)/K when one client holds everything


def counts_array(counts: ArrayLike) -> Array:
    """``counts`` as a float table, or the reason why it is not one."""
    table = np.asarray(counts, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] == 0:
        raise UserError(f"label counts have shape {table.shape}: give a row per client, a column per class")
    if not np.isfinite(table).all():
        raise UserError("label counts contain NaN or infinity: put 0 where a client lacks a class")
    if (table < 0).any():
        raise UserError("label counts are negative somewhere: clip noised counts at 0 first")
    return table


def proportions(counts: ArrayLike) -> Array:
    """Each client's label distribution, K x C; NaN in the row of an empty client."""
    table = counts_array(counts)
    size = table.sum(axis=1, keepdims=True)
    return np.divide(table, size, out=np.full_like(table, np.nan), where=size > 0)


def pooled(counts: ArrayLike) -> Array:
    """The label distribution of all samples together."""
    total = counts_array(counts).sum(axis=0)
    return total / total.sum() if total.any() else np.full_like(total, np.nan)


# Population stability index ---------------------------------------------------------------------------------


def psi_terms(
    counts: ArrayLike,
    smoothing: Smoothing = "eps",
    eps: float = EPS,
    pseudo_count: float = PSEUDO_COUNT,
    reference: ArrayLike | None = None,
) -> Array:
    """The K x C terms (P_c - p_ic) ln(P_c / p_ic) of the population stability index; none is negative.

    P is the pool of ``reference``, another table of counts; by default of these clients themselves.

    The logarithm needs a value for classes a client lacks. ``"eps"`` adds ``eps`` to both probabilities and
    does not renormalise, like the code of the authors of Clust-PSI-PFL (arXiv 2512.20363); a missing class
    then counts about P_c ln(P_c / eps). ``"laplace"`` adds ``pseudo_count`` to every count, so that the
    penalty grows with the evidence for absence. A class no client holds contributes nothing either way.
    """
    table = counts_array(counts)
    base = table if reference is None else counts_array(reference)
    seen = table.any(axis=0) | base.any(axis=0)
    share, pool = _smoothed(table, base, int(seen.sum()), smoothing, eps, pseudo_count)
    terms = (pool - share) * np.log(pool / share)
    terms[:, ~seen] = 0.0
    terms[~table.any(axis=1)] = np.nan
    return terms


def psi_signed_terms(
    counts: ArrayLike,
    smoothing: Smoothing = "eps",
    eps: float = EPS,
    pseudo_count: float = PSEUDO_COUNT,
    reference: ArrayLike | None = None,
) -> Array:
    """:func:`psi_terms`, negative where the client holds less of a class than the federation does.

    The plain terms forget the direction: at P = 1/3, holding 0.9 or 0.05 of a class gives 0.563 or 0.538.
    """
    pool = pooled(counts if reference is None else reference)
    return psi_terms(counts, smoothing, eps, pseudo_count, reference) * np.sign(proportions(counts) - pool)


def psi(
    counts: ArrayLike,
    smoothing: Smoothing = "eps",
    eps: float = EPS,
    pseudo_count: float = PSEUDO_COUNT,
    reference: ArrayLike | None = None,
) -> Array:
    """Population stability index of each client against the pool (Jeffreys divergence)."""
    table = counts_array(counts)
    base = (table if reference is None else counts_array(reference)).sum(axis=0, keepdims=True)
    pieces = (table[start : start + PIECE] for start in range(0, len(table), PIECE))  # terms are K x C
    index = [psi_terms(rows, smoothing, eps, pseudo_count, base).sum(axis=1) for rows in pieces]
    return np.concatenate([np.zeros(0), *index])


def wpsi(
    counts: ArrayLike, smoothing: Smoothing = "eps", eps: float = EPS, pseudo_count: float = PSEUDO_COUNT
) -> float:
    """The sample-weighted mean of :func:`psi` over clients. Under IID sampling about (C-1)(K-1)/N."""
    table = _held(counts)
    size = table.sum(axis=1)
    return float(size @ psi(table, smoothing, eps, pseudo_count) / size.sum()) if size.size else float("nan")


def _smoothed(
    table: Array, base: Array, seen: int, smoothing: str, eps: float, pseudo_count: float
) -> tuple[Array, Array]:
    """Shares of each client and of the pool; a class nobody holds must not take mass from the ``seen``."""
    if smoothing == "eps":
        return proportions(table) + eps, pooled(base) + eps
    if smoothing == "laplace":
        share = (table + pseudo_count) / (table.sum(axis=1, keepdims=True) + pseudo_count * seen)
        return share, (base.sum(axis=0) + pseudo_count) / (base.sum() + pseudo_count * seen)
    raise UserError(f"unknown smoothing '{smoothing}'{nearest(smoothing, get_args(Smoothing))}")


# Distances between clients ----------------------------------------------------------------------------------


def hellinger(counts: ArrayLike) -> float:
    """Root mean square of the Hellinger distances of all pairs of clients, as FedArtML defines it.

    Σ_{i<j} |x_i - x_j|² = K Σ_i |x_i - x̄|² turns the mean over pairs into the sample variance of √p: O(KC).
    """
    root = np.sqrt(proportions(_held(counts)))
    if len(root) < 2:
        return 0.0
    return float(np.sqrt(((root - root.mean(axis=0)) ** 2).sum() / (len(root) - 1)))


def hellinger_points(counts: ArrayLike) -> Array:
    """Points √(p/2), whose Euclidean distances are Hellinger distances; NaN for empty clients."""
    return np.sqrt(proportions(counts) / 2)


def hellinger_matrix(p: ArrayLike) -> Array:
    """Hellinger distance of every pair of distributions (rows of ``p``), between 0 and 1."""
    from scipy.spatial.distance import pdist, squareform

    # Differences, not a Gram matrix: equal rows are then exactly 0 apart, which density clustering needs.
    return squareform(pdist(np.sqrt(np.asarray(p, dtype=np.float64) / 2)))


def hellinger_to_pool(counts: ArrayLike, reference: ArrayLike | None = None) -> Array:
    """Hellinger distance of each client to the pool of all, or of the clients in ``reference``."""
    pool = pooled(counts if reference is None else reference)
    return np.sqrt(((np.sqrt(proportions(counts)) - np.sqrt(pool)) ** 2).sum(axis=1) / 2)


def jensen_shannon(counts: ArrayLike) -> float:
    """FedArtML's Jensen-Shannon distance of all clients at once, every client weighing the same.

    The divergence is divided by log₂K, so the greatest value is √(log₂C / log₂K) when K > C:
    do not compare federations with different numbers of clients.
    """
    share = proportions(_held(counts))
    if len(share) < 2:
        return 0.0
    divergence = _entropy(share.mean(axis=0)) - _entropy(share).mean()
    return float(np.sqrt(max(divergence, 0.0) / np.log2(len(share))))


def emd_fedartml(counts: ArrayLike) -> float:
    """FedArtML's "EMD", kept for comparison with papers that print it; prefer :func:`label_emd`.

    It hands probabilities to ``scipy.stats.wasserstein_distance`` as if they were samples, which compares the
    *sorted* probabilities: clients that hold one different class each score 0. The mean over all pairs comes
    from Σ_{i<j} |x_i - x_j| = Σ_k (2k - K + 1) x_(k) for each rank: O(KC log K).
    """
    shape = np.sort(proportions(_held(counts)), axis=1)
    clients = len(shape)
    if clients < 2:
        return 0.0
    rank = 2 * np.arange(clients) - clients + 1
    gaps = np.sort(shape, axis=0) - shape.min(axis=0)  # shifted: equal clients give exactly 0
    total = (rank @ gaps).sum()
    return float(np.sqrt(max(total, 0.0) / shape.shape[1] / (clients * (clients - 1) / 2)))


def label_emd(counts: ArrayLike) -> float:
    """Sample-weighted mean of |p_i - P|₁, the label distance of Zhao et al. (arXiv 1806.00582): 0 to 2."""
    table = _held(counts)
    size = table.sum(axis=1)
    if not size.size:
        return float("nan")
    return float(size @ np.abs(proportions(table) - pooled(table)).sum(axis=1) / size.sum())


# Coverage and sizes -----------------------------------------------------------------------------------------


def coverage(counts: ArrayLike) -> Array:
    """The share of the federation's classes that each client holds at least once."""
    table = counts_array(counts)
    seen = table.any(axis=0).sum()
    return np.where(table.any(axis=1), (table > 0).sum(axis=1) / max(seen, 1), np.nan)


def size_imbalance(counts: ArrayLike) -> SizeImbalance:
    """Of the clients that hold anything; see :class:`SizeImbalance`."""
    size = np.sort(_held(counts).sum(axis=1))
    if not size.size:
        return SizeImbalance(float("nan"), float("nan"))
    rank = 2 * np.arange(size.size) - size.size + 1
    return SizeImbalance(float(size[-1] / size[0]), float(rank @ size / (size.size * size.sum())))


def _held(counts: ArrayLike) -> Array:
    """The rows of clients that hold anything."""
    table = counts_array(counts)
    held = table.any(axis=1)
    return table if held.all() else table[held]


def _entropy(p: Array) -> Array:
    return -(p * np.log2(p, out=np.zeros_like(p), where=p > 0)).sum(axis=-1)
