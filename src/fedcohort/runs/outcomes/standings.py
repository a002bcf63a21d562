"""How methods compare over their seeds, and how each of their numbers is written."""

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedcohort.core.evaluate import VALIDATION
from fedcohort.runs.evaluation import CHOSEN
from fedcohort.runs.outcomes.conditions import combinations, joins, place, swept
from fedcohort.runs.outcomes.findings import Finding, findings, in_few_words
from fedcohort.runs.outcomes.flat import Settings
from fedcohort.runs.outcomes.over_rounds import ACCURACY
from fedcohort.runs.recorder import jsonable
from fedcohort.runs.run import PER_ROUND
from fedcohort.runs.stored import RunSettings

UNEVEN = 1.1  # times the clients of another method that are worth a word

RAND = "rand"
LESS = {
    "loss", "train_loss", "ad", "sdad", "wadb", "bytes_up", "bytes_down", "rounds_to_target", "lost",
    "rejected", "declined", "messages", "diverged",
}  # fmt: skip
MORE = {
    RAND, "adjusted_rand", "was", "cohort_entropy", "mean_cohort_entropy", "macro_f1", "auroc",
    "average_precision",
}  # fmt: skip
KINDS = {
    "bytes_up": "megabytes", "bytes_down": "megabytes", "groups": "count", "samples": "count",
    "macro_f1": "percent", "majority": "percent", "auroc": "share", "average_precision": "share",
    CHOSEN: "count",
}  # fmt: skip
NAMES = {"macro_f1": "macro F1", "auroc": "AUROC"}
RECALL = "global.accuracy["  # before the name of a class


def nature(key: str) -> tuple[bool | None, str]:
    """Of a number: whether more is better (None: neither), and how to print it."""
    key = key.removeprefix(VALIDATION)
    name = key.rpartition(".")[2] if "[" not in key else key.partition(".")[2]
    right = name.startswith(("accuracy[", "iid_")) or ("accuracy" in name and "[" not in name)
    more = True if right or name in MORE else False if name in LESS else None
    return more, "percent" if right or name.startswith("named[") else KINDS.get(name, "number")


def spelled(key: str) -> str:
    """Of a number that ranks methods: ``global balanced accuracy``."""
    scope, _, name = key.removeprefix(VALIDATION).rpartition(".")
    return f"{scope} {NAMES.get(name, name.replace('_', ' '))}"


def how_ranked(ranked_by: str) -> str:
    """Which samples ranked methods and chose rounds."""
    if ranked_by.startswith(VALIDATION):
        return (
            f"Ranked by {spelled(ranked_by)} on validation samples, which also chose the round of each run; "
            "all other numbers are of test samples, looked at once, for that round."
        )
    return (
        f"Ranked by {spelled(ranked_by)} on test samples after the last round, as papers do: the best number "
        "is flattered by the choice (evaluate.on = 'validation' avoids that)."
    )


Column = tuple[str, str, bool | None, str]  # key, title, and their nature


def _titled(titles: dict[str, str]) -> tuple[Column, ...]:
    return tuple((key, title, *nature(key)) for key, title in titles.items())


COLUMNS = _titled(
    {
        "global.accuracy": "global\naccuracy",
        "personal.accuracy": "personal\naccuracy",
        "ad": "AD",
        "groups": "groups",
        RAND: "Rand",
        "bytes_up": "MB\nup",
        "bytes_down": "MB\ndown",
    }
)
ASIDE = (RAND, "bytes_up", "bytes_down")  # where a terminal has no room for all
OF_CLASSES = _titled(
    {
        "global.balanced_accuracy": "balanced\naccuracy",
        "global.macro_f1": "macro\nF1",
        "global.auroc": "\nAUROC",
        "global.average_precision": "average\nprecision",
    }
)
BASELINE = "most common class"  # the line below all methods
UNKNOWN = "No accuracy is known: these runs had no test samples, or have not been evaluated yet."
SCOPES = (
    "global: all test samples together, each answered by the model that serves its client. "
    "personal: the mean over clients of the accuracy on their own test samples. "
    "AD: the mean of |1 - accuracy| over clients. "
    f"{BASELINE}: who always gives the answer that is right most often, global the same everywhere, personal "
    "each client its own. "
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
    ranked_by: str = ACCURACY

    @property
    def title(self) -> str:
        return titled(self.method, self.condition)

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
    ranked_by: str = ACCURACY
    findings: tuple[Finding, ...] = ()  # what is wrong with it, the worst first

    @property
    def metric(self) -> str:
        """The number that ranks it, on test samples."""
        return self.ranked_by.removeprefix(VALIDATION)

    @property
    def rank(self) -> float:
        """By which it is sorted: the best is the least, unknown ones are last."""
        value = self.mean.get(self.ranked_by, math.nan)
        return math.inf if math.isnan(value) else -value if nature(self.ranked_by)[0] else value

    def to_dict(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "settings": self.settings,
            "ranked_by": self.ranked_by,
            "findings": [finding.to_dict() for finding in self.findings],
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


def rankings(outcomes: Sequence[Outcome], pooled: Collection[str] = ()) -> list[list[Standing]]:
    """A ranking for each combination of conditions: no two values of one are ever ranked together. Methods
    that are ``pooled`` come last: they need all data in one place, so that no client could use them."""
    conditions = combinations([outcome.settings for outcome in outcomes])
    ranked = (
        rank([replace(outcome, settings=told) for outcome in outcomes if joins(outcome.settings, told)])
        for told in conditions
    )
    return [sorted(own, key=lambda standing: standing.method in pooled) for own in ranked]


def rank(outcomes: Sequence[Outcome]) -> list[Standing]:
    """Methods over their seeds, the best first by the number that ranks them; all under the same
    conditions."""
    standings, metrics = [], {outcome.ranked_by for outcome in outcomes}
    ranked_by = metrics.pop() if len(metrics) == 1 else ACCURACY
    for method in dict.fromkeys(outcome.method for outcome in outcomes):
        runs = [outcome for outcome in outcomes if outcome.method == method]
        keys = [key for key in runs[0].metrics if all(key in other.metrics for other in runs)]
        values = {key: [other.metrics[key] for other in runs] for key in keys}
        mean = {key: statistics.fmean(several) for key, several in values.items()}
        std = {key: deviation(several) for key, several in values.items()}
        seeds = tuple(other.seed for other in runs)
        found = findings(method, {other.seed: other.metrics for other in runs})
        standings.append(Standing(method, seeds, mean, std, runs[0].settings, ranked_by, found))
    return sorted(standings, key=lambda standing: standing.rank)


def columns(standings: Sequence[Standing]) -> list[Column]:
    """Those that tell something: how well groups are found only where some are known and some were found."""
    ranked_by, chosen = standings[0].ranked_by, any(CHOSEN in standing.mean for standing in standings)
    leading = {} if ranked_by in [key for key, *_ in COLUMNS] else {ranked_by: _heading(ranked_by)}
    leading |= {CHOSEN: "chosen\nround"} if chosen else {}
    return [
        *_titled(leading),
        *(column for column in _known(standings) if not (chosen and column[0] in ASIDE)),
    ]


def _known(standings: Sequence[Standing]) -> list[Column]:
    several = any(standing.mean.get("groups", 1) > 1 and RAND in standing.mean for standing in standings)
    return [column for column in COLUMNS if column[0] != RAND or several]


def _heading(key: str) -> str:
    """Of the column that ranks."""
    scope, _, name = spelled(key).partition(" ")
    return f"validation\n{name}" if key.startswith(VALIDATION) else f"{scope}\n{name}"


def class_columns(standings: Sequence[Standing]) -> list[Column]:
    """What the labels of test samples tell beyond accuracy, as far as they were told."""
    return [column for column in OF_CLASSES if any(column[0] in standing.mean for standing in standings)]


def aside_columns(standings: Sequence[Standing]) -> list[Column]:
    """Those that gave way to numbers of validation samples."""
    return [column for column in _known(standings) if column not in columns(standings)]


def recalls(standing: Standing) -> dict[str, float]:
    """Of every class, how many of its test samples are recognised; NaN where there are none."""
    own = {key: value for key, value in standing.mean.items() if key.startswith(RECALL)}
    return {key[len(RECALL) : -1]: value for key, value in own.items()}


def lowest_recall(standing: Standing) -> str:
    """The class that is recognised worst, in words."""
    known = {name: value for name, value in recalls(standing).items() if not math.isnan(value)}
    name = min(known, key=lambda name: known[name], default=None)
    return "–" if name is None else f"{known[name]:.0%} of {name}"


def baseline(standings: Sequence[Standing]) -> dict[str, float]:
    """What a constant answer gets, in the columns of the leaderboard; nothing where labels are withheld."""
    pairs = {f"{scope}.accuracy": f"{scope}.majority" for scope in ("global", "personal")}
    known = [standing.mean for standing in standings]
    found = {key: next((own[of] for own in known if of in own), math.nan) for key, of in pairs.items()}
    return {key: value for key, value in found.items() if not math.isnan(value)}


def verdict(standings: Sequence[Standing]) -> str:
    """The first thing to know of a ranking, in a sentence: what is wrong with the best method or, if nothing
    is, how good it is."""
    best = standings[0]
    if best.findings:
        return _of_all(standings) + str(best.findings[0])
    if math.isinf(best.rank):
        return UNKNOWN
    value = cell(best.mean.get(best.metric, math.nan), 0.0, nature(best.metric)[1], False)
    metric = spelled(best.metric)
    words = f"is best by {metric}, {value}" if len(standings) > 1 else f"has {metric} {value}"
    if len(standings) > 1 and best.ranked_by.startswith(VALIDATION):  # on test samples another may have more
        words = f"is best by {metric} on validation samples, and has {value} on test samples"
    constant = baseline(standings).get(best.metric)
    beside = f"; always giving the most common answer gets {constant:.1%}" if constant is not None else ""
    return f"{best.method} {words}{beside}."


def _of_all(standings: Sequence[Standing]) -> str:
    """What is wrong with every method, if there are several: said before what is wrong with the best."""
    kinds = [{found.kind for found in standing.findings if found.hopeless} for standing in standings]
    if len(standings) == 1 or not all(kinds):
        return ""
    if all("diverged" in kind for kind in kinds):
        return "Every method diverged, so numbers tell little of any. "
    nothing = all("constant" in kind for kind in kinds)
    return "No method learnt anything here. " if nothing else "No method is of use here. "


def remarks(standings: Sequence[Standing]) -> list[str]:
    """What else is wrong, beyond the verdict; a sentence for each kind."""
    found = [finding for standing in standings for finding in standing.findings]
    return in_few_words(found[1:] if standings[0].findings else found)


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
    if kind == "whole percent":
        return f"{mean:.0%}"
    if kind == "share":
        return f"{mean:.3f} ± {std:.3f}" if several else f"{mean:.3f}"
    if kind == "megabytes":
        return f"{mean / 1e6:.2f}" if mean >= 1e5 else f"{mean / 1e6:.2g}"  # small models send kilobytes
    if kind == "count":
        return f"{mean:.1f}".removesuffix(".0")
    return f"{mean:.3f}"
