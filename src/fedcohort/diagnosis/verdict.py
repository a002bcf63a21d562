"""The numbers of a diagnosis in three plain sentences: how skewed, who belongs with whom, what to do.

The bands 0.1 and 0.25 are the rules of thumb by which credit scoring reads PSI. They presume samples so large
that chance plays no part; here they apply to the excess of WPSI over chance, and a WPSI that chance alone
reaches too is never called skew.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedcohort.cluster import EXACT
from fedcohort.diagnosis.distances import Array, pooled, proportions
from fedcohort.diagnosis.grouping import Suggestion
from fedcohort.metrics import adjusted_rand

Level = Literal["little", "moderate", "strong"]

MODERATE, STRONG = 0.1, 0.25  # WPSI above chance
CLEAR = 0.5  # silhouette from which Kaufman and Rousseeuw (1990) call a structure reasonable
SAME = 0.9  # adjusted Rand index from which two readings tell the same story
NAMED = 4  # groups described in a sentence


class Verdict(NamedTuple):
    """Three sentences, the level they rest on, and remarks on the data themselves."""

    level: Level
    skew: str
    groups: str
    advice: str
    notes: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, str, str]:
        """How skewed, who belongs with whom, what to do."""
        return self.skew, self.groups, self.advice


def judge(
    counts: Array,
    client_names: Sequence[str],
    class_names: Sequence[str],
    wpsi: float,
    chance: Array,
    label_emd: float,
    suggestions: Sequence[Suggestion],
) -> Verdict:
    """Words for the numbers. ``chance`` are WPSI values of the same federation without skew."""
    level = _level(wpsi, chance)
    clear = None if level == "little" else clearest(suggestions)
    return Verdict(
        level,
        _skew_sentence(level, wpsi, chance, label_emd),
        _groups_sentence(level, wpsi <= chance.max(), clear, suggestions, counts, class_names),
        _advice_sentence(level, clear, suggestions),
        tuple(_notes(counts, client_names, class_names)),
    )


def clearest(suggestions: Sequence[Suggestion]) -> Suggestion | None:
    """The suggestion with the best silhouette in Hellinger space, if it shows a few clear groups at all."""
    fit = [
        item
        for item in suggestions
        if item.label_silhouette >= CLEAR and 2 <= item.groups <= (item.labels >= 0).sum() / 2
    ]
    return max(fit, key=lambda item: item.label_silhouette, default=None)


def _level(wpsi: float, chance: Array) -> Level:
    excess = wpsi - chance.mean()
    if excess < MODERATE or wpsi <= chance.max():
        return "little"
    return "moderate" if excess < STRONG else "strong"


def _skew_sentence(level: Level, wpsi: float, chance: Array, label_emd: float) -> str:
    if level == "little" and wpsi >= MODERATE:
        return (
            f"Little label skew that these samples could prove: WPSI is {wpsi:.3g}, but clients are so small "
            f"that chance alone gives {chance.mean():.2g}."
        )
    band = {
        "little": f"credit scoring calls less than {MODERATE} stable",
        "moderate": f"credit scoring calls {MODERATE} to {STRONG} a moderate shift",
        "strong": f"credit scoring calls more than {STRONG} a large shift",
    }[level]
    return (
        f"{level.capitalize()} label skew: about {label_emd / 2:.0%} of a client's samples would have to "
        f"change class to match the federation, and WPSI, the mean divergence of clients from it, is "
        f"{wpsi:.3g} where chance alone gives {chance.mean():.2g} ({band})."
    )


def _groups_sentence(
    level: Level,
    by_luck: bool,
    clear: Suggestion | None,
    suggestions: Sequence[Suggestion],
    counts: Array,
    class_names: Sequence[str],
) -> str:
    if level == "little" and by_luck:
        return "All clients belong together: any groups would be groups of chance."
    if level == "little":
        return "All clients belong together: they differ by more than chance, but too little to part them."
    if clear is None:
        tried = (
            f"{item.rule} gives {_number(item.groups, 'group')} (silhouette {_score(item.label_silhouette)})"
            for item in suggestions
        )
        return f"No clear groups stand out: {', '.join(tried)}."
    described = [_describe(clear, group, counts, class_names) for group in range(min(clear.groups, NAMED))]
    more = f" and {clear.groups - NAMED} more" if clear.groups > NAMED else ""
    dissent = "" if _agree(suggestions) else "; the other reading groups clients differently"
    return (
        f"{clear.groups} groups stand out by {clear.rule} (silhouette {_score(clear.label_silhouette)}): "
        f"{', '.join(described)}{more}{dissent}."
    )


def _advice_sentence(level: Level, clear: Suggestion | None, suggestions: Sequence[Suggestion]) -> str:
    if level == "little":
        return "Train one model with plain fedavg: labels call for nothing more (features still may)."
    if clear is None:
        start = "fedavg may do, so compare it" if level == "moderate" else "compare fedavg"
        return (
            f"Train one model for all: {start} with choosing each round's clients by labels or losses "
            f"(fedentopt, fedlecc) and with corrected local training (fedprox, scaffold, fedlc)."
        )
    by_psi = next((item for item in suggestions if item.reading == "clust_psi_pfl"), clear)
    if by_psi is clear or adjusted_rand(by_psi.labels, clear.labels) >= SAME:
        how = "clust_psi_pfl"
    else:
        how = "ifca, fedgwc, or clust_psi_pfl with signed features, because unsigned ones mix these groups"
    alone = "; groups of one or two clients gain little from it" if min(clear.sizes) < 3 else ""
    return (
        f"Train one model per group ({how}) if a client may use its group's model{alone}; if one model must "
        f"serve all, choose each round's clients across groups (fedlecc, fedentopt)."
    )


def _notes(counts: Array, client_names: Sequence[str], class_names: Sequence[str]) -> list[str]:
    notes = []
    if counts.any(axis=1).sum() > EXACT:
        notes.append(
            f"Groups by density come from a sample of {EXACT:,} clients; the others joined the nearest."
        )
    empty = [client_names[i] for i in np.flatnonzero(~counts.any(axis=1)).tolist()]
    if empty:
        notes.append(f"{_number(len(empty), 'client')} without samples left out: {_some(empty)}.")
    absent = [class_names[c] for c in np.flatnonzero(~counts.any(axis=0)).tolist()]
    if absent:
        notes.append(f"{_number(len(absent), 'class', 'classes')} that no client holds: {_some(absent)}.")
    seen, held = counts.any(axis=0), counts.any(axis=1)
    single = [class_names[c] for c in np.flatnonzero((counts > 0).sum(axis=0) == 1).tolist()]
    if single:
        notes.append(f"{_number(len(single), 'class', 'classes')} held by a single client: {_some(single)}.")
    missing = (counts[held][:, seen] == 0).mean()
    if missing > 0:
        notes.append(
            f"{missing:.0%} of client-class pairs have no sample; what they add to PSI depends on the "
            f"smoothing, so compare WPSI only with values of the same smoothing."
        )
    return notes


def _describe(suggestion: Suggestion, group: int, counts: Array, class_names: Sequence[str]) -> str:
    """Size of a group, and the class of which it holds most in excess of the federation."""
    own = counts[suggestion.labels == group].sum(axis=0, keepdims=True)
    top = class_names[int((proportions(own)[0] - pooled(counts)).argmax())]
    return f"group {group} ({_number(suggestion.sizes[group], 'client')}, more '{top}')"


def _agree(suggestions: Sequence[Suggestion]) -> bool:
    first, *others = suggestions
    return all(adjusted_rand(first.labels, other.labels) >= SAME for other in others)


def _score(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.2f}"


def _number(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
