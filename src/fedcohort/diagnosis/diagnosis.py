"""Everything label counts tell about a federation before any model is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedcohort.diagnosis.verdict import Divergence, Verdict, judge
from fedcohort.stats import label_distances
from fedcohort.stats.label_distances import EPS, Array, SizeImbalance, Smoothing
from fedcohort.stats.label_groups import (
    Suggestion,
    largest,
    share_clusters,
    share_silhouettes,
    signed_groups,
    suggest_groups,
)
from fedcohort.stats.metrics import binary_scores
from fedcohort.util.errors import UserError
from fedcohort.util.keyed import numpy_generator

FEW = 200  # clients for whom all numbers of clusters are tried
TERMS = 10**7  # of PSI, a number for each client and class, that are written out


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """The result of :func:`diagnose`; clients keep their order, NaN marks those without samples."""

    counts: Array
    client_names: tuple[str, ...]
    class_names: tuple[str, ...]
    smoothing: Smoothing
    eps: float
    wpsi: float
    wpsi_laplace: float  # the same with half a pseudo-count per class instead of eps
    wpsi_by_chance: float  # mean WPSI when every client draws its labels from the pool
    psi: Array
    psi_terms: Array
    hellinger: float
    jensen_shannon: float
    emd_fedartml: float
    label_emd: float
    hellinger_to_pool: Array
    coverage: Array
    size_imbalance: SizeImbalance
    suggestions: tuple[Suggestion, ...]
    silhouettes: dict[str, dict[int, float]]  # by method, of every number of groups that it would try
    verdict: Verdict
    iid: dict[str, float] | None = None  # how well CAFA's largest cluster tells clients known to be IID

    @property
    def size(self) -> Array:
        """Samples of each client."""
        return self.counts.sum(axis=1)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists, ready for JSON; what is undefined is None."""
        per_class = self.counts.sum(axis=0)
        return {
            "clients": len(self.client_names),
            "classes": len(self.class_names),
            "samples": _count(self.counts.sum()),
            "empty_clients": int((self.size == 0).sum()),
            "smoothing": {"kind": self.smoothing, "amount": self._smoothing_amount()},
            "wpsi": _plain(self.wpsi),
            "wpsi_laplace": _plain(self.wpsi_laplace),
            "wpsi_by_chance": _plain(self.wpsi_by_chance),
            "hellinger": _plain(self.hellinger),
            "jensen_shannon": _plain(self.jensen_shannon),
            "emd_fedartml": _plain(self.emd_fedartml),
            "label_emd": _plain(self.label_emd),
            "size_imbalance": {name: _plain(value) for name, value in self.size_imbalance._asdict().items()},
            "coverage": {"mean": _plain(np.nanmean(self.coverage)), "min": _plain(np.nanmin(self.coverage))},
            "verdict": list(self.verdict.sentences),
            "skew": self.verdict.level,
            "methods": list(self.verdict.methods),
            "notes": list(self.verdict.notes),
            **({} if self.iid is None else {"iid": self.iid}),
            "suggested_groups": {item.reading: _group_table(item) for item in self.suggestions},
            "silhouettes": {
                method: {"groups": list(tried), "silhouette": [_plain(value) for value in tried.values()]}
                for method, tried in self.silhouettes.items()
            },
            "client_names": list(self.client_names),
            "class_names": list(self.class_names),
            "client_samples": [_count(value) for value in self.size],
            "class_samples": [_count(value) for value in per_class],
            "psi": [_plain(value) for value in self.psi],
            "psi_terms": self._listed_terms(),
            "client_coverage": [_plain(value) for value in self.coverage],
            "client_hellinger": [_plain(value) for value in self.hellinger_to_pool],
        }

    def _listed_terms(self) -> list[list[float | None]] | None:
        if self.psi_terms.size > TERMS:
            return None  # as text they would take gigabytes
        return [[_plain(value) for value in row] for row in self.psi_terms]

    def _smoothing_amount(self) -> float:
        return self.eps if self.smoothing == "eps" else label_distances.PSEUDO_COUNT


def diagnose(
    counts: ArrayLike,
    clients: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    seed: int = 0,
    max_groups: int | None = 20,
    smoothing: Smoothing = "eps",
    eps: float = EPS,
    iid: ArrayLike | None = None,
) -> Diagnosis:
    """Measures label skew from a K x C table of label counts and says what to do about it.

    ``max_groups`` bounds the search for groups (None: up to K-1, slow beyond a few hundred clients).
    ``smoothing`` decides what a missing class costs in PSI: see
    :func:`fedcohort.stats.label_distances.psi_terms`. Where it is known which clients are ``iid``, it is told
    how well CAFA's clusters find them.
    """
    table = label_distances.counts_array(counts)
    if (table.sum(axis=1) > 0).sum() < 2:
        raise UserError("fewer than two clients hold any sample: a diagnosis compares clients")
    if table.shape[1] < 2:
        raise UserError("there is one class only: labels cannot be skewed")
    client_names = _names(clients, table.shape[0], "clients")
    class_names = _names(classes, table.shape[1], "classes")
    chosen, laplace = _measure(table, seed, (smoothing, "laplace"), eps)
    terms = label_distances.psi_terms(table, smoothing, eps)
    moved = label_distances.label_emd(table)
    suggestions = suggest_groups(table, seed, max_groups, smoothing, eps)
    by_sign = partial(signed_groups, table, seed, max_groups, smoothing, eps)
    names = client_names, class_names
    return Diagnosis(
        counts=table,
        client_names=client_names,
        class_names=class_names,
        smoothing=smoothing,
        eps=eps,
        wpsi=chosen.wpsi,
        wpsi_laplace=laplace.wpsi,
        wpsi_by_chance=float(chosen.chance.mean()),
        psi=terms.sum(axis=1),
        psi_terms=terms,
        hellinger=label_distances.hellinger(table),
        jensen_shannon=label_distances.jensen_shannon(table),
        emd_fedartml=label_distances.emd_fedartml(table),
        label_emd=moved,
        hellinger_to_pool=label_distances.hellinger_to_pool(table),
        coverage=label_distances.coverage(table),
        size_imbalance=label_distances.size_imbalance(table),
        suggestions=suggestions,
        silhouettes=_silhouettes(table, suggestions, seed, max_groups),
        verdict=judge(table, *names, chosen, laplace, moved, suggestions, by_sign),
        iid=None if iid is None else _told_apart(table, seed, max_groups, np.asarray(iid)),
    )


def _told_apart(table: Array, seed: int, max_groups: int | None, iid: np.ndarray) -> dict[str, float]:
    """The number of clusters, that of clients taken for IID, and how often this is right; as in CAFA, up to
    K-1 clusters are tried, unless clients are many."""
    labels = share_clusters(table, None, seed, None if len(table) <= FEW else max_groups)
    found = labels == largest(labels)
    counted = {"clusters": float(labels.max() + 1), "found": float(found.sum())}
    return {**counted, **binary_scores(found, iid)}


def _measure(table: Array, seed: int, smoothings: Sequence[Smoothing], eps: float) -> list[Divergence]:
    """WPSI by each smoothing, and that of federations like this one in which no client differs from the pool
    but by luck.

    Simulated, because the asymptotic (C-1)(K-1)/N fails just where it matters: small clients miss classes by
    chance, and a missing class is what PSI punishes most.
    """
    random = numpy_generator(seed, "diagnose", "chance")
    pool, size = label_distances.pooled(table), np.rint(table.sum(axis=1)).astype(np.int64)
    draws = int(np.clip(2_000_000 // table.size, 3, 50))  # large federations vary less and cost more
    by_chance = []
    for _ in range(draws):
        drawn = random.multinomial(size, pool)
        by_chance.append([label_distances.wpsi(drawn, smoothing, eps) for smoothing in smoothings])
    return [
        Divergence(label_distances.wpsi(table, smoothing, eps), chance)
        for smoothing, chance in zip(smoothings, np.array(by_chance).T, strict=True)
    ]


def _silhouettes(
    table: Array, suggestions: Sequence[Suggestion], seed: int, max_groups: int | None
) -> dict[str, dict[int, float]]:
    """Of the methods that choose the number of groups by it."""
    curves = {item.reading: item.tried for item in suggestions}
    curves["cafa"] = share_silhouettes(table, seed, max_groups)
    return {method: tried for method, tried in curves.items() if tried}


def _names(given: Sequence[str] | None, number: int, what: str) -> tuple[str, ...]:
    if given is None:
        return tuple(str(index) for index in range(number))
    if len(given) != number:
        raise UserError(f"{len(given)} names for {number} {what}: give one name each")
    return tuple(str(name) for name in given)


def _plain(value: float | np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None


def _count(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)  # noised counts need not be whole


def _group_table(suggestion: Suggestion) -> dict[str, Any]:
    return {
        "rule": suggestion.rule,
        "groups": suggestion.groups,
        "silhouette": _plain(suggestion.silhouette),
        "label_silhouette": _plain(suggestion.label_silhouette),
        "sizes": suggestion.sizes,
        "labels": [None if label < 0 else int(label) for label in suggestion.labels],
    }
