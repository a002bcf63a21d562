"""What a comparison comes to: who should use what, and how sure that is, over all seeds."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedcohort.report.evidence import Evidence, Run
from fedcohort.report.page import Led
from fedcohort.report.standings import against_leader, copies_of, is_share, standings_of, sureness
from fedcohort.runs.outcomes.over_rounds import ACCURACY
from fedcohort.runs.outcomes.standings import (
    UNKNOWN,
    Standing,
    baseline,
    cell,
    nature,
    remarks,
    spelled,
    verdict,
)
from fedcohort.stats.intervals import Interval, of_mean, of_share
from fedcohort.stats.paired import SEEDS, Paired


@dataclass(frozen=True, eq=False)
class Conclusion:
    """Of all runs of a report."""

    evidence: Evidence

    @cached_property
    def standings(self) -> list[Standing]:
        """Of all methods, the best first; who went exactly like another is left out."""
        ranked = standings_of(self.evidence)
        copies = copies_of(self.evidence, ranked)
        return [standing for standing in ranked if standing.method not in copies]

    @property
    def best(self) -> Standing:
        return self.standings[0]

    @cached_property
    def usable(self) -> list[Standing]:
        """Those that a client could use; where there is none, all."""
        found = [each for each in self.standings if each.method not in self.evidence.pooled]
        return found or self.standings

    @cached_property
    def tests(self) -> dict[str, Paired]:
        """The best against every other."""
        return against_leader(self.evidence, self.usable)

    @property
    def known(self) -> bool:
        return not np.isinf(self.best.rank)

    @property
    def hopeless(self) -> bool:
        return any(finding.hopeless for finding in self.best.findings)

    def runs(self, standing: Standing) -> list[Run]:
        return [run for run in self.evidence.runs if run.title == standing.method]

    def interval(self, standing: Standing) -> Interval | None:
        """Of the mean over seeds; where these are too few, of as many test samples."""
        key, runs = standing.metric, self.runs(standing)
        values = [run.metrics.get(key, np.nan) for run in runs]
        if not np.isfinite(values).all():
            return None
        if len(values) >= SEEDS:
            low, high = of_mean(values)
            return Interval(max(low, 0.0), min(high, 1.0)) if is_share(key) else Interval(low, high)
        samples = sum(run.metrics.get("global.samples", 0) for run in runs)
        return of_share(standing.mean[key] * samples, samples) if key == ACCURACY and samples else None

    def value(self, standing: Standing) -> str:
        """The number that ranks, with its interval."""
        key, kind = standing.metric, nature(standing.metric)[1]
        shown, between = cell(standing.mean.get(key, np.nan), 0, kind, False), self.interval(standing)
        if between is None:
            return shown
        return f"{shown} (95 %: {' to '.join(cell(end, 0, kind, False) for end in between)})"

    @property
    def sentences(self) -> Iterator[str | Led]:
        if not self.known:
            yield UNKNOWN
            return
        if self.best.findings:
            yield verdict(self.standings)
        if not self.hopeless:
            yield self._advised()
            yield self._beside()
        yield from remarks([self.best])

    def _advised(self) -> Led:
        """Who should use what, and how sure that is."""
        best, others = self.best, self.usable[1:]
        metric, value = spelled(best.metric), self.value(best)
        sure = sureness(self.tests, len(others)) if others else "."
        if self._is_alone(best):
            shared = next((other for other in others if not self._is_alone(other)), None)
            beside = f", against {self.value(shared)} with {shared.method}" if shared else ""
            return Led(f"Let every client train alone ({best.method}):", f"{metric} {value}{beside}{sure}")
        return Led(f"Use {best.method},", f"{self._whom(best)}: {metric} {value}{sure}")

    def _whom(self, standing: Standing) -> str:
        """Which model serves whom."""
        groups, clients = standing.mean.get("groups", 1), len(self.runs(standing)[0].clients)
        if self.runs(standing)[0].about.personal or groups >= clients > 1:
            return "which ends with a model for each client"
        if groups > 1:
            return f"which ends with a model for each of {cell(groups, 0, 'count', False)} groups of clients"
        if self.runs(standing)[0].about.pooled:
            return "which needs all data in one place"
        return "one model for everybody"

    def _is_alone(self, standing: Standing) -> bool:
        return all(run.about.silent and not run.about.pooled for run in self.runs(standing))

    def _beside(self) -> str:
        """Against the constant answer, training alone, and all data in one place."""
        key, found = self.best.metric, []
        constant = baseline(self.standings).get(key)
        if constant is not None:
            found.append(f"always giving the most common answer gets {constant:.1%}")
        for names, words in ((self.alone, "every client alone"), (self._pooled, "all data in one place")):
            own = names[0] if names else None
            if own is not self.best:
                found.append(f"{words} {f'gets {self.value(own)}' if own else 'was not run'}")
        return f"For comparison, {', '.join(found)}."

    @property
    def alone(self) -> list[Standing]:
        """Those in which every client trains by itself."""
        return [standing for standing in self.standings if self._is_alone(standing)]

    @property
    def _pooled(self) -> list[Standing]:
        return [standing for standing in self.standings if standing.method in self.evidence.pooled]
