"""What results are judged by: quality of groups, accuracy across clients, rounds and label balance.

scikit-learn supplies the definitions it has; only what differs is written out. A score that is undefined for
its input is NaN (never a flattering 0); clients without test samples (NaN accuracy or size 0) are left out.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

# Groups of clients ------------------------------------------------------------------------------------------


def silhouette(points: ArrayLike, labels: ArrayLike) -> float:
    """Mean silhouette, -1 to 1; a point alone in its group scores 0. NaN unless 2 <= groups <= K-1."""
    from sklearn.metrics import silhouette_score

    if not _comparable(labels):
        return float("nan")
    return float(silhouette_score(np.asarray(points, dtype=np.float64), np.asarray(labels)))


def weighted_silhouette(distances: Array, labels: NDArray[np.int64], weights: Array) -> float:
    """:func:`silhouette` when row i of ``distances`` stands for ``weights[i]`` identical clients.

    scikit-learn has no weights; with them a federation of many equal clients costs its distinct ones only,
    and one distance matrix serves every number of groups in a search. -inf when there is a single group.
    """
    groups, member = np.unique(labels, return_inverse=True)
    if len(groups) < 2:
        return float("-inf")
    share = np.eye(len(groups))[member] * weights[:, None]
    total, size = distances @ share, share.sum(axis=0)
    own = np.arange(len(labels)), member
    inside = total[own] / np.maximum(size[member] - 1, 1)
    mean = total / size
    mean[own] = np.inf
    outside = mean.min(axis=1)
    largest = np.maximum(inside, outside)
    score = np.divide(outside - inside, largest, out=np.zeros_like(largest), where=largest > 0)
    score[size[member] <= 1] = 0.0
    return float(score @ weights / weights.sum())


def binary_scores(found: ArrayLike, truth: ArrayLike) -> dict[str, float]:
    """How well ``found`` tells the clients for which ``truth`` holds; a ratio of nothing to nothing is 0."""
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    names, said = np.asarray(truth, dtype=bool), np.asarray(found, dtype=bool)
    precision, recall, f1, _ = precision_recall_fscore_support(names, said, average="binary", zero_division=0)
    scores = accuracy_score(names, said), precision, recall, f1
    return dict(zip(("accuracy", "precision", "recall", "f1"), map(float, scores), strict=True))


def davies_bouldin(points: ArrayLike, labels: ArrayLike) -> float:
    """Davies-Bouldin index, lower is better. NaN unless 2 <= groups <= K-1 with distinct centroids.

    scikit-learn ignores pairs of coincident centroids, so that the worst possible grouping can score 0.
    """
    from scipy.spatial.distance import pdist
    from sklearn.metrics import davies_bouldin_score

    table, names = np.asarray(points, dtype=np.float64), np.asarray(labels)
    if not _comparable(names):
        return float("nan")
    centroids = np.array([table[names == name].mean(axis=0) for name in np.unique(names)])
    if pdist(centroids).min() <= 1e-12 * np.abs(table).max():
        return float("nan")
    return float(davies_bouldin_score(table, names))


def rand(labels: ArrayLike, truth: ArrayLike) -> float:
    """Share of client pairs on which two groupings agree; not adjusted for chance."""
    from sklearn.metrics import rand_score

    return float(rand_score(np.asarray(truth), np.asarray(labels)))


def adjusted_rand(labels: ArrayLike, truth: ArrayLike) -> float:
    """Rand index adjusted for chance: 0 for random groups, 1 for the same groups."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(np.asarray(truth), np.asarray(labels)))


def shapes(p: ArrayLike) -> Array:
    """Each row's probabilities in descending order: how imbalanced a client is, whichever its classes."""
    return -np.sort(-np.asarray(p, dtype=np.float64), axis=1)


def was(p: ArrayLike, labels: ArrayLike) -> float:
    """Wasserstein-adjusted silhouette of FedGWC: :func:`silhouette` of :func:`shapes`."""
    return silhouette(shapes(p), labels)


def wadb(p: ArrayLike, labels: ArrayLike) -> float:
    """Wasserstein-adjusted Davies-Bouldin index of FedGWC: :func:`davies_bouldin` of :func:`shapes`."""
    return davies_bouldin(shapes(p), labels)


def expected_pair_updates(rounds: int, cohort: int, clients: int) -> float:
    """How often two given clients meet in a uniformly drawn cohort: T m(m-1) / (K(K-1))."""
    return rounds * cohort * (cohort - 1) / (clients * (clients - 1)) if clients > 1 else float("nan")


# Accuracy across clients ------------------------------------------------------------------------------------


def global_accuracy(accuracy: ArrayLike, size: ArrayLike) -> float:
    """Accuracy of all test samples pooled, from each client's accuracy and number of *test* samples."""
    values, sizes = np.asarray(accuracy, dtype=np.float64), np.asarray(size, dtype=np.float64)
    tested = (sizes > 0) & ~np.isnan(values)
    return float(np.average(values[tested], weights=sizes[tested])) if tested.any() else float("nan")


def accuracy_deviation(accuracy: ArrayLike) -> float:
    """AD: the mean over clients of |accuracy - 1|, each client counting once."""
    gap = _gaps(accuracy)
    return float(gap.mean()) if gap.size else float("nan")


def accuracy_deviation_sd(accuracy: ArrayLike) -> float:
    """SDAD: the population standard deviation over clients of |accuracy - 1|; 0 is perfectly fair."""
    gap = _gaps(accuracy)
    return float(gap.std()) if gap.size else float("nan")


def balanced_accuracy(correct: ArrayLike, total: ArrayLike) -> Array:
    """Mean recall over the classes present in the test set, from counts per class (last axis).

    One value per leading index: K x C tables give K values, NaN for a client without test samples.
    """
    hits, sizes = np.asarray(correct, dtype=np.float64), np.asarray(total, dtype=np.float64)
    present = (sizes > 0).sum(axis=-1)
    recall = np.divide(hits, sizes, out=np.zeros_like(sizes), where=sizes > 0).sum(axis=-1)
    return np.divide(recall, present, out=np.full(np.shape(present), np.nan), where=present > 0)


def macro_f1(correct: ArrayLike, total: ArrayLike, named: ArrayLike) -> Array:
    """Mean F1 over classes, from counts per class (last axis): right answers, samples, and answers that name
    the class. As scikit-learn has it, a class without samples counts, with 0, where an answer names it."""
    hits, both = np.asarray(correct, dtype=np.float64), np.add(total, named, dtype=np.float64)
    present = (both > 0).sum(axis=-1)
    f1 = np.divide(2 * hits, both, out=np.zeros_like(both), where=both > 0).sum(axis=-1)
    return np.divide(f1, present, out=np.full(np.shape(present), np.nan), where=present > 0)


def majority(total: ArrayLike) -> Array:
    """The accuracy of always answering with the class that has most samples, from counts per class (last
    axis)."""
    sizes = np.asarray(total, dtype=np.float64)
    every = sizes.sum(axis=-1)
    return np.divide(sizes.max(axis=-1), every, out=np.full(np.shape(every), np.nan), where=every > 0)


def surpasses(accuracy: float, baseline: float, samples: float) -> bool:
    """Whether so many samples show that an accuracy is above ``baseline`` (one-sided, at 5 %)."""
    return accuracy > baseline + 1.645 * (baseline * (1 - baseline) / max(samples, 1.0)) ** 0.5


def ranking_scores(counts: ArrayLike) -> tuple[float, float]:
    """AUROC and average precision of the second of two classes, from the samples of both, ``[2, B]``, in
    ascending bins of a score; NaN unless there are samples of both.

    Nothing orders the samples of a bin: both are means over all their orders. So they are scikit-learn's
    where no bin has two samples; where one has, its AUROC for ties, while its average precision puts all
    samples of a tie in the place of the last, which would be less than the scores themselves give.
    """
    from scipy.special import digamma

    others, sought = np.asarray(counts, dtype=np.float64)[:, ::-1]
    if not (others.any() and sought.any()):
        return float("nan"), float("nan")
    above, size = np.cumsum(sought) - sought, others + sought
    auroc = others @ (above + sought / 2) / (others.sum() * sought.sum())
    some = size > 0
    found, size, above, before = (each[some] for each in (sought, size, above, np.cumsum(size) - size))
    # The j-th of a bin is sought with odds found/size; then, on average, above + 1 + (j-1)(found-1)/(size-1)
    # of the first before + j are. Summed over j, with H the sum of 1/(before + j):
    h = digamma(before + size + 1) - digamma(before + 1)
    mixed = (found - 1) / np.maximum(size - 1, 1) * (size - (before + 1) * h)
    precision = found / size * ((above + 1) * h + mixed)
    return float(auroc), float(precision.sum() / found.sum())


def rounds_to_target(
    accuracy: ArrayLike, target: float, rounds: ArrayLike | None = None, consecutive: int = 1, window: int = 1
) -> float:
    """The first round at which ``target`` is reached; infinity if it never is.

    ``rounds`` are the rounds evaluated (1, 2, ... by default). ``consecutive=w`` asks for w evaluations in a
    row and answers with the first of them; ``window=w`` compares the mean of the last w evaluations instead.
    """
    values = np.asarray(accuracy, dtype=np.float64)
    when = np.arange(1, len(values) + 1) if rounds is None else np.asarray(rounds)
    if len(values) < max(consecutive, window):
        return float("inf")
    if window > 1:
        values = np.lib.stride_tricks.sliding_window_view(values, window).mean(axis=1)
        when = when[window - 1 :]
    if len(values) < consecutive:
        return float("inf")
    runs = np.lib.stride_tricks.sliding_window_view(values >= target, consecutive).all(axis=1)
    return float(when[runs.argmax()]) if runs.any() else float("inf")


# Labels and traffic of a cohort -----------------------------------------------------------------------------


def cohort_entropy(counts: ArrayLike) -> float:
    """Entropy in bits of the labels a cohort holds together; at most log₂C.

    Above log₂(C-1) every class is present. Counts that privacy noise made negative are clipped at 0.
    """
    table = np.clip(np.asarray(counts, dtype=np.float64), 0.0, None)
    total = table.reshape(-1, table.shape[-1]).sum(axis=0)
    p = total[total > 0] / max(total.sum(), np.finfo(float).tiny)
    return float(abs((p * np.log2(p)).sum()))  # abs: a single class gives 0, not -0


def megabytes(numbers: int, transfers: int = 1, width: int = 4) -> float:
    """Traffic in 10⁶ bytes: ``transfers`` messages of ``numbers`` values, ``width`` bytes each."""
    return numbers * transfers * width / 1e6


def _comparable(labels: ArrayLike) -> bool:
    names = np.asarray(labels)
    return 2 <= len(np.unique(names)) <= len(names) - 1


def _gaps(accuracy: ArrayLike) -> Array:
    values = np.asarray(accuracy, dtype=np.float64)
    return np.abs(values[~np.isnan(values)] - 1)
