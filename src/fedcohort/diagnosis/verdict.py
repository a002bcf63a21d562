"""The numbers of a diagnosis in three plain sentences: how skewed, who belongs with whom, what to do.

The bands 0.1 and 0.25 are the rules of thumb by which credit scoring reads PSI. They presume samples so large
that chance plays no part; here they apply to the excess of WPSI over chance, and a WPSI that chance alone
reaches too is never called skew. Where WPSI falls into another band once half a sample is added to every
count, it is the smoothing that decides, and the verdict takes the lower band.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from fedcohort.stats.clustering import EXACT, MANY, Labels
from fedcohort.stats.label_distances import Array, pooled, proportions
from fedcohort.stats.label_groups import Suggestion
from fedcohort.stats.metrics import adjusted_rand
from fedcohort.util.words import some

Level = Literal["little", "moderate", "strong"]

MODERATE, STRONG = 0.1, 0.25  # WPSI above chance
CLEAR = 0.5  # silhouette from which Kaufman and Rousseeuw (1990) call a structure reasonable
SAME = 0.9  # adjusted Rand index from which two readings tell the same story
NAMED = 4  # groups described in a sentence
FEW = 10  # with fewer clients than this all can take part in every round
ENOUGH = 30  # samples with which clients of strong skew mostly do better alone than by fedavg (studies/)
SMALL = 3  # groups of fewer clients gain little from sharing, and fedgwc forms none


class Divergence(NamedTuple):
    """WPSI by one smoothing, and its values in federations like this one without skew."""

    wpsi: float
    chance: Array

    @property
    def by_luck(self) -> bool:
        """Whether chance alone reaches it."""
        return self.wpsi <= self.chance.max()

    @property
    def level(self) -> Level:
        excess = self.wpsi - self.chance.mean()
        if excess < MODERATE or self.by_luck:
            return "little"
        return "moderate" if excess < STRONG else "strong"


class Verdict(NamedTuple):
    """Three sentences, the level they rest on, and remarks on the data themselves."""

    level: Level
    skew: str
    groups: str
    advice: str
    methods: tuple[str, ...]  # that it names
    notes: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, str, str]:
        """How skewed, who belongs with whom, what to do."""
        return self.skew, self.groups, self.advice


def judge(
    counts: Array,
    client_names: Sequence[str],
    class_names: Sequence[str],
    chosen: Divergence,
    laplace: Divergence,
    label_emd: float,
    suggestions: Sequence[Suggestion],
    signed_groups: Callable[[], Labels],
) -> Verdict:
    """Words for the numbers.

    ``chosen`` is WPSI as it is printed, ``laplace`` with half a sample added to every count.
    ``signed_groups`` finds the groups of clust_psi_pfl by signed features; it is asked only where unsigned
    ones miss those that stand out.
    """
    cautious = min(chosen, laplace, key=lambda item: get_args(Level).index(item.level))
    clear = None if cautious.level == "little" else clearest(suggestions)
    sizes = counts[counts.any(axis=1)].sum(axis=1)
    return Verdict(
        cautious.level,
        _skew_sentence(chosen, cautious, label_emd),
        _groups_sentence(cautious, clear, suggestions, counts, class_names),
        *_advice(cautious.level, clear, suggestions, signed_groups, sizes),
        tuple(_notes(counts, client_names, class_names)),
    )


def clearest(suggestions: Sequence[Suggestion]) -> Suggestion | None:
    """The suggestion with the best silhouette in Hellinger space, if it shows a few clear groups at all.

    At least two of them hold several clients: a single client beside all others is no grouping.
    """
    fit = [
        item
        for item in suggestions
        if item.label_silhouette >= CLEAR
        and item.groups <= (item.labels >= 0).sum() / 2
        and sum(size > 1 for size in item.sizes) >= 2
    ]
    return max(fit, key=lambda item: item.label_silhouette, default=None)


def _skew_sentence(chosen: Divergence, cautious: Divergence, label_emd: float) -> str:
    level, how = cautious.level, "" if cautious is chosen else " with half a sample added to every count"
    if cautious.by_luck and cautious.wpsi >= MODERATE:
        return (
            f"Little label skew that these samples could prove: WPSI is {cautious.wpsi:.3g}{how}, but "
            f"clients are so small that chance alone gives up to {cautious.chance.max():.3g}."
        )
    band = {
        "little": f"a difference of less than {MODERATE} stable",
        "moderate": f"a difference of {MODERATE} to {STRONG} a moderate shift",
        "strong": f"a difference of more than {STRONG} a large shift",
    }[level]
    other = ""
    if how:
        numbers = f"{cautious.wpsi:.3g} where chance gives {cautious.chance.mean():.2g}"
        other = f";{how} it is {numbers}, and this decides"
    return (
        f"{level.capitalize()} label skew: about {label_emd / 2:.0%} of a client's samples would have to "
        f"change class to match the federation, and WPSI, the mean divergence of clients from it, is "
        f"{chosen.wpsi:.3g} where chance alone gives {chosen.chance.mean():.2g}{other} "
        f"(credit scoring calls {band})."
    )


def _groups_sentence(
    cautious: Divergence,
    clear: Suggestion | None,
    suggestions: Sequence[Suggestion],
    counts: Array,
    class_names: Sequence[str],
) -> str:
    if cautious.by_luck:
        return "All clients belong together: any groups would be groups of chance."
    if cautious.level == "little":
        return "All clients belong together: they differ by more than chance, but too little to part them."
    if clear is None:
        tried = (
            f"{item.rule} gives {_number(item.groups, 'group')} (silhouette {_score(item.label_silhouette)})"
            for item in suggestions
        )
        return f"No clear groups of several clients stand out: {', '.join(tried)}."
    described = some(range(clear.groups), NAMED, lambda group: _describe(clear, group, counts, class_names))
    dissent = "" if _agree(suggestions) else "; the other reading groups clients differently"
    return (
        f"{clear.groups} groups stand out by {clear.rule} (silhouette {_score(clear.label_silhouette)}): "
        f"{described}{dissent}."
    )


def _advice(
    level: Level,
    clear: Suggestion | None,
    suggestions: Sequence[Suggestion],
    signed_groups: Callable[[], Labels],
    sizes: Array,
) -> tuple[str, tuple[str, ...]]:
    """The sentence, and the methods that it names; ``sizes`` are the samples of clients that have some."""
    clients, middle = len(sizes), float(np.median(sizes))
    if level == "little":
        seen = "; fedavg+finetune shows whether they do" if middle >= ENOUGH else ""
        sentence = "Train one model with plain fedavg: labels call for nothing more (features still may"
        return f"{sentence}{seen}).", ("fedavg", *(["fedavg+finetune"] if seen else []))
    few = f"; with only {clients} clients, let all of them take part in every round"
    choosing = () if clients < FEW else ("fedentopt", "fedlecc")
    found: tuple[str, ...] = ("fedprox", "scaffold", "fedlc")
    if clear is None:
        base = "fedavg"
        start = "fedavg may do, so compare it" if level == "moderate" else "compare fedavg"
        start = f"Train one model for all: {start} with corrected local training ({', '.join(found)})"
        choose = " and, if a round takes only some clients, with choosing them by labels or losses"
    else:
        how, found = _who_finds(clear, suggestions, signed_groups)
        start, base = f"Train one model per group ({how}) if a client may use its group's model", found[0]
        if _mostly_small(clear):
            base = "fedavg"
            start = (
                f"Compare one model per group ({how}) with one for all (fedavg), because groups of one or "
                f"two clients may gain little"
            )
        choose = (
            "; if one model must serve all and a round takes only some clients, choose them across groups"
        )
        choosing = choosing[::-1]
    start += f"{choose} ({', '.join(choosing)})" if choosing else few
    if middle < ENOUGH:
        return f"{start}.", ("fedavg", *found, *choosing)
    own = (
        f"; where clients may have models of their own, compare {base}+finetune and local_only too (half of "
        f"them have {middle:.0f} samples or more)"
    )
    return f"{start}{own}.", ("fedavg", *found, *choosing, f"{base}+finetune", "local_only")


def _who_finds(
    clear: Suggestion, suggestions: Sequence[Suggestion], signed_groups: Callable[[], Labels]
) -> tuple[str, tuple[str, ...]]:
    """The methods that would train the groups which stand out, in words too."""
    by_psi = next((item.labels for item in suggestions if item.reading == "clust_psi_pfl"), clear.labels)
    if adjusted_rand(by_psi, clear.labels) >= SAME:
        return "clust_psi_pfl", ("clust_psi_pfl",)
    by_losses = ("ifca",) if _mostly_small(clear) else ("ifca", "fedgwc")
    words = ", ".join(by_losses)
    if adjusted_rand(signed_groups(), clear.labels) >= SAME:
        words += ", or clust_psi_pfl with signed features, because unsigned ones mix these groups"
        return words, (*by_losses, "clust_psi_pfl(signed=true)")
    return words, by_losses


def _mostly_small(clear: Suggestion) -> bool:
    """Whether at least half of the clients are in small groups."""
    return 2 * sum(size for size in clear.sizes if size < SMALL) >= sum(clear.sizes)


def _notes(counts: Array, client_names: Sequence[str], class_names: Sequence[str]) -> list[str]:
    notes = []
    for how, most in (("density", EXACT), ("PSI", MANY)):
        if counts.any(axis=1).sum() > most:
            notes.append(
                f"Groups by {how} come from a sample of {most:,} clients; the others joined the nearest."
            )
    empty = [client_names[i] for i in np.flatnonzero(~counts.any(axis=1)).tolist()]
    if empty:
        notes.append(f"{_number(len(empty), 'client')} without samples left out: {some(empty, 5)}.")
    absent = [class_names[c] for c in np.flatnonzero(~counts.any(axis=0)).tolist()]
    if absent:
        notes.append(f"{_number(len(absent), 'class', 'classes')} that no client holds: {some(absent, 5)}.")
    lone = [class_names[c] for c in np.flatnonzero((counts > 0).sum(axis=0) == 1).tolist()]
    if lone:
        notes.append(f"{_number(len(lone), 'class', 'classes')} held by a single client: {some(lone, 5)}.")
    missing = 1 - (counts > 0).sum() / (counts.any(axis=0).sum() * counts.any(axis=1).sum())
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
