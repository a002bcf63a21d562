"""How a run serves its clients: who is badly served, and the numbers that may explain it.

A client counts as badly served when its test samples are answered worse than those of the whole federation
by more than luck explains: a binomial test for each client, with at most 5 % false discoveries among those
named (Benjamini and Hochberg 1995). A client with three test samples can hardly be named, and should not be.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcohort.report.evidence import Evidence, Ints, Labels, Run
from fedcohort.runs.outcomes.findings import Finding, findings
from fedcohort.stats.label_distances import Array, proportions

FALSE = 0.05  # share of false discoveries among the clients that are named
BETTER = 0.05  # of accuracy: what another method must add to be worth a hint ...
ERRORS = 2  # ... and how many standard errors that must be
NEARER = 0.05  # of Hellinger distance: what makes another group's labels clearly nearer
RARE = 0.5  # of the median: trains rarely
TENTH = 0.1  # of the clients: those served worst


@dataclass(frozen=True, eq=False)
class Service:
    """How one run serves its clients."""

    evidence: Evidence
    run: Run

    @cached_property
    def overall(self) -> float:
        return self.run.metrics.get("global.accuracy", np.nan)

    @cached_property
    def hopeless(self) -> Finding | None:
        """Why nothing can be said about single clients, if nothing can."""
        found = findings(self.run.title, {self.run.seed: self.run.metrics})
        return next((finding for finding in found if finding.hopeless), None)

    @cached_property
    def tested(self) -> Ints:
        """Clients whose accuracy is known."""
        return np.flatnonzero((self.run.test_size > 0) & ~np.isnan(self.run.accuracy))

    @cached_property
    def bad(self) -> list[int]:
        """Clients served worse than luck explains, worst first."""
        from scipy.special import bdtr  # scipy.stats takes a second to import

        tested = self.tested
        if not len(tested) or np.isnan(self.overall):
            return []
        size, accuracy = self.run.test_size[tested], self.run.accuracy[tested]
        luck = bdtr(np.rint(accuracy * size), size.astype(np.int64), self.overall)
        order = np.argsort(luck, kind="stable")
        below = np.flatnonzero(luck[order] < FALSE * np.arange(1, len(order) + 1) / len(order))
        named = np.sort(tested[order[: below.max() + 1 if len(below) else 0]])  # Benjamini and Hochberg
        return named[np.argsort(self.run.accuracy[named], kind="stable")].tolist()

    def limit(self, size: Array) -> Array:
        """The accuracy on ``size`` test samples up to which a client is in :attr:`bad`; below 0 where even no
        right answer may be luck. The tests of Benjamini and Hochberg come down to one bound on p."""
        from scipy.special import bdtrik

        bound = FALSE * max(len(self.bad), 1) / max(len(self.tested), 1)
        possible = (1 - self.overall) ** size <= bound
        return np.where(possible, bdtrik(bound, size, self.overall) / size, -1.0)

    @cached_property
    def labels(self) -> Labels | None:
        known = self.evidence.labels_of(self.run)
        return known if isinstance(known, Labels) else None

    @cached_property
    def expected(self) -> Array:
        """[K] accuracy if each class were recognised at every client as well as in the federation; NaN where
        a client's labels, or the accuracy of the classes, are not known."""
        unknown = np.full(len(self.run.clients), np.nan)
        if self.labels is None:
            return unknown
        recall = [self.run.metrics.get(f"global.accuracy[{name}]", np.nan) for name in self.labels.classes]
        if np.isnan(recall).all():
            return unknown
        return proportions(self.labels.counts) @ np.nan_to_num(np.array(recall), nan=self.overall)

    def by_labels(self, client: int) -> bool:
        """Whether its mix of classes explains at least half of what it lacks."""
        return bool(self.overall - self.expected[client] >= (self.overall - self.run.accuracy[client]) / 2)

    @cached_property
    def distance(self) -> tuple[list[int], Array] | None:
        """Groups, and how far each client's labels are from those of each group's other clients."""
        numbers = np.unique(self.run.group).tolist()
        if self.labels is None:
            return None
        counts, columns = self.labels.counts, []
        own = np.sqrt(proportions(counts))
        for number in numbers:
            members = self.run.group == number
            rest = counts[members].sum(axis=0) - counts * members[:, None]
            gap = own - np.sqrt(proportions(np.clip(rest, 0, None)))
            columns.append(np.sqrt((gap**2).sum(axis=1) / 2))
        return numbers, np.stack(columns, axis=1)

    @cached_property
    def elsewhere(self) -> list[Run]:
        """Other methods on the same data and seed."""
        same = (self.run.facts["fingerprint"], self.run.clients)
        runs = (run for run in self.evidence.runs if run is not self.run)
        return [
            run for run in runs if (run.facts["fingerprint"], run.clients) == same and not run.about.pooled
        ]

    def best_elsewhere(self, client: int) -> Run | None:
        """The method that serves this client clearly better, if one does."""
        best = max(self.elsewhere, key=lambda run: np.nan_to_num(run.accuracy[client], nan=-1), default=None)
        if best is None:
            return None
        ours, theirs = self.run.accuracy[client], best.accuracy[client]
        error = np.sqrt((ours * (1 - ours) + theirs * (1 - theirs)) / max(self.run.test_size[client], 1))
        return best if theirs - ours >= max(BETTER, ERRORS * error) else None

    def rarely(self, client: int) -> bool:
        """Whether it trained much less often than the median client."""
        return bool(self.run.trained[client] < RARE * np.median(self.run.trained))

    def nearer(self, client: int) -> tuple[int, float, float] | None:
        """A group whose labels are clearly nearer than those of the client's own, and both distances."""
        if self.distance is None:
            return None
        groups, far = self.distance
        own = groups.index(int(self.run.group[client]))
        if np.isnan(far[client, own]):  # it has no samples, or is alone in its group
            return None
        best = int(np.nanargmin(far[client]))
        if far[client, best] > far[client, own] - NEARER:
            return None
        return groups[best], far[client, best], far[client, own]


def worst_tenth(accuracy: Array) -> float:
    """Mean accuracy of the tenth of the clients that has the lowest, at least one."""
    known = np.sort(accuracy[~np.isnan(accuracy)])
    return float(known[: max(1, round(TENTH * len(known)))].mean()) if len(known) else np.nan
