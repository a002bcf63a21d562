"""How methods compare over their seeds, and how each of their numbers is written."""

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcohort.runs.conditions import combinations, joins, place, swept
from fedcohort.runs.flat import Settings
from fedcohort.runs.recorder import jsonable
from fedcohort.runs.run import PER_ROUND
from fedcohort.runs.stored import RunSettings

UNEVEN = 1.1  # times the clients of another method that are worth a word

RAND = "rand"
LESS = {
    "loss", "train_loss", "ad", "sdad", "wadb", "bytes_up", "bytes_down", "rounds_to_target", "lost",
    "rejected", "declined", "messages",
}  # fmt: skip
MORE = {RAND, "adjusted_rand", "was", "cohort_entropy"}
KINDS = {"bytes_up": "megabytes", "bytes_down": "megabytes", "groups": "count"}


def nature(key: str) -> tuple[bool | None, str]:
    """Of a number: whether more is better (None: neither), and how to print it."""
    name = key.rpartition(".")[2] if "[" not in key else key.partition(".")[2]
    right = "accuracy" in name or name.startswith("iid_")
    more = True if right or name in MORE else False if name in LESS else None
    return more, "percent" if right else KINDS.get(name, "number")


# Leaderboard columns: key, title, and their nature.
COLUMNS: tuple[tuple[str, str, bool | None, str], ...] = tuple(
    (key, title, *nature(key))
    for key, title in {
        "global.accuracy": "global\naccuracy",
        "personal.accuracy": "personal\naccuracy",
        "ad": "AD",
        "groups": "groups",
        RAND: "Rand",
        "bytes_up": "MB\nup",
        "bytes_down": "MB\ndown",
    }.items()
)
SCOPES = (
    "global: all test samples together, each answered by the model that serves its client. "
    "personal: the mean over clients of the accuracy on their own test samples. "
    "AD: the mean of |1 - accuracy| over clients. "
    "Rand, where groups are known: the share of pairs of clients that are rightly together or apart."
)


def titled(method: str, condition: str) -> str:
    """What a run is called where several conditions are compared."""
    return f"{method}, {condition}" if condition else method


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    method: str
    seed: int
    directory: Path
    metrics: dict[str, float]
    condition: str = ""  # the values of this run, where a comparison sweeps some
    settings: Settings = field(default_factory=dict)  # the conditions, where runs differ in any

    @property
    def title(self) -> str:
        return titled(self.method, self.condition)

    @property
    def useless(self) -> bool:
        """Whether in the last round everybody who answered was rejected."""
        rejected, lost = self.metrics.get("rejected", 0), self.metrics.get("lost", 0)
        return 0 < rejected == self.metrics.get("cohort", 0) - lost

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "seed": self.seed,
            "settings": self.settings,
            "dir": str(self.directory),
            "metrics": jsonable(self.metrics),
        }


@dataclass(frozen=True)
class Standing:
    """One method over its seeds, under the same conditions."""

    method: str
    seeds: tuple[int, ...]
    mean: dict[str, float]
    std: dict[str, float]  # of the sample; 0 for a single seed
    settings: Settings = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "settings": self.settings,
            "seeds": list(self.seeds),
            "mean": jsonable(self.mean),
            "std": jsonable(self.std),
        }


def with_conditions(home: Path, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of a comparison, each with the conditions that its directory tells."""
    placed = place([RunSettings.read(outcome.directory) for outcome in outcomes], swept(home))
    return [
        replace(outcome, method=run.method, settings=run.settings)
        for outcome, run in zip(outcomes, placed, strict=True)
    ]


def rankings(outcomes: Sequence[Outcome]) -> list[list[Standing]]:
    """A ranking for each combination of conditions: no two values of one are ever ranked together."""
    conditions = combinations([outcome.settings for outcome in outcomes])
    return [
        rank([replace(outcome, settings=told) for outcome in outcomes if joins(outcome.settings, told)])
        for told in conditions
    ]


def rank(outcomes: Sequence[Outcome]) -> list[Standing]:
    """Methods over their seeds, best global accuracy first; all under the same conditions."""
    standings = []
    for method in dict.fromkeys(outcome.method for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.method == method]
        keys = [key for key in runs[0].metrics if all(key in other.metrics for other in runs)]
        values = {key: [other.metrics[key] for other in runs] for key in keys}
        mean = {key: statistics.fmean(several) for key, several in values.items()}
        std = {key: deviation(several) for key, several in values.items()}
        seeds = tuple(other.seed for other in runs)
        standings.append(Standing(method, seeds, mean, std, runs[0].settings))
    return sorted(standings, key=_place)


def columns(standings: Sequence[Standing]) -> list[tuple[str, str, bool | None, str]]:
    """Those that tell something: how well groups are found only where some are known and some were found."""
    several = any(standing.mean.get("groups", 1) > 1 and RAND in standing.mean for standing in standings)
    return [column for column in COLUMNS if column[0] != RAND or several]


def uneven(standings: Sequence[Standing], references: Collection[str] = ()) -> str:
    """What is to be said where some methods trained more clients a round than others; ``references`` aside,
    which are no federated learning."""
    asked = {
        standing.method: standing.mean[PER_ROUND]
        for standing in standings
        if PER_ROUND in standing.mean and standing.method not in references
    }
    if not asked or max(asked.values()) <= UNEVEN * min(asked.values()):
        return ""
    most, least = (pick(asked, key=lambda title: asked[title]) for pick in (max, min))
    return (
        f"{most} trained {asked[most]:.3g} clients a round, {least} {asked[least]:.3g}: as many rounds are "
        "not as much work"
    )


def _place(standing: Standing) -> float:
    """Sorts by global accuracy, unknown ones last."""
    accuracy = standing.mean.get("global.accuracy", math.nan)
    return math.inf if math.isnan(accuracy) else -accuracy


def deviation(values: Sequence[float]) -> float:
    """Of the sample; 0 for a single seed, NaN where a value is unknown or never reached."""
    if len(values) < 2:
        return 0.0
    return statistics.stdev(values) if all(map(math.isfinite, values)) else math.nan


def rounds_cells(standing: Standing, keys: Iterable[str]) -> list[str]:
    several = len(standing.seeds) > 1
    return [
        cell(standing.mean.get(key, math.nan), standing.std.get(key, math.nan), "percent", several)
        for key in keys
    ]


def cell(mean: float, std: float, kind: str, several: bool) -> str:
    if math.isnan(mean):  # nobody has test samples
        return "–"
    if kind == "percent":
        return f"{mean:.1%} ± {std * 100:.1f}" if several else f"{mean:.1%}"
    if kind == "megabytes":
        return f"{mean / 1e6:.2f}" if mean >= 1e5 else f"{mean / 1e6:.2g}"  # small models send kilobytes
    if kind == "count":
        return f"{mean:.1f}".removesuffix(".0")
    return f"{mean:.3f}"
