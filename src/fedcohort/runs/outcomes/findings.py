"""What is wrong with what a method came to, whatever its rank, and what to try: leaderboards, reports and
``--json`` begin with it.

A model that diverged, or that knows no more than the most common answer, has numbers like any other; nothing
that could be said about single clients or classes explains them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from fedcohort.stats.metrics import surpasses
from fedcohort.util.words import counted

Runs = Mapping[int, Mapping[str, float]]  # the last numbers of a method's runs, by their seeds
NAMED = "global.named["  # before the name of a class
LISTED = 3  # classes that a sentence names


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a method."""

    kind: Literal["diverged", "constant", "never", "own constant"]
    method: str
    seeds: tuple[int, ...]  # with which it is so
    what: str  # the rest of a sentence that begins with the method
    cure: str

    def __str__(self) -> str:
        return f"{self.method} {self.what}: {self.cure}."

    @property
    def hopeless(self) -> bool:
        """Whether nothing was learnt, so that no other number means anything."""
        return self.kind in ("diverged", "constant")

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "seeds": list(self.seeds), "sentence": str(self)}


SEVERAL = {  # what several methods have in common
    "diverged": "diverged",
    "constant": "answer no more right than the most common answer",
    "never": "never give some classes as an answer",
    "own constant": "serve the average client no better than its own most common answer",
}


def in_few_words(found: Sequence[Finding]) -> list[str]:
    """One sentence for each kind of finding, whatever the number of methods."""
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.kind, []).append(finding)
    return [
        str(own[0]) if len(own) == 1 else f"{_listed(own)} {SEVERAL[kind]}: {own[0].cure}."
        for kind, own in kinds.items()
    ]


def _listed(found: Sequence[Finding]) -> str:
    *others, last = dict.fromkeys(finding.method for finding in found)
    return f"{', '.join(others)} and {last}"


def findings(method: str, runs: Runs) -> tuple[Finding, ...]:
    """The worst first."""
    if lost := _diverged(method, runs):
        return (lost,)
    constant = _constant(method, runs)
    own = None if constant else _own_constant(method, runs)
    return tuple(found for found in (constant, _never(method, runs), own) if found is not None)


def _diverged(method: str, runs: Runs) -> Finding | None:
    seeds = _where(runs, lambda own: own.get("diverged", 0) > 0)
    if not seeds:
        return None
    losses = [runs[seed].get(key, 0) for seed in seeds for key in ("global.loss", "train_loss")]
    grows = all(map(math.isfinite, losses))  # else no client's answer could be used in the end
    what = f"diverged{_with(seeds, runs)}, {'its loss grows' if grows else 'its loss is no number any more'}"
    return Finding("diverged", method, seeds, what, "try a tenth of local.lr")


def _constant(method: str, runs: Runs) -> Finding | None:
    """No more than the most common answer would get, as far as so many samples tell."""
    right, constant = (_mean(runs, f"global.{metric}") for metric in ("accuracy", "majority"))
    samples = sum(own.get("global.samples", 0) for own in runs.values())
    if math.isnan(right) or math.isnan(constant) or surpasses(right, constant, samples):
        return None
    what = f"answers {right:.1%} right, and always giving the most common answer gets {constant:.1%}"
    cure = "try more rounds, another local.lr, or class weights (balanced)"
    return Finding("constant", method, tuple(runs), what, cure)


def _never(method: str, runs: Runs) -> Finding | None:
    """Classes that have test samples and are no answer, with at least half of the seeds."""
    names = [key[len(NAMED) : -1] for key in next(iter(runs.values()), {}) if key.startswith(NAMED)]
    found = {name: seeds for name in names if len(seeds := _unnamed(runs, name)) * 2 >= len(runs)}
    if not found:
        return None
    seeds = tuple(seed for seed in runs if any(seed in own for own in found.values()))
    listed = ", ".join(f"'{name}'" for name in list(found)[:LISTED])
    more = f" and {counted(len(found) - LISTED, 'class')} more" if len(found) > LISTED else ""
    cure = "try class weights (balanced), and rank by evaluate.metric = 'global.balanced_accuracy'"
    return Finding("never", method, seeds, f"never answers {listed}{more}{_with(seeds, runs)}", cure)


def _unnamed(runs: Runs, name: str) -> tuple[int, ...]:
    recall, named = f"global.accuracy[{name}]", f"{NAMED}{name}]"
    return _where(runs, lambda own: own.get(recall, math.nan) == 0 == own.get(named))


def _own_constant(method: str, runs: Runs) -> Finding | None:
    """Clients would be served as well by their own most common answers."""
    right, constant = (_mean(runs, f"personal.{metric}") for metric in ("accuracy", "majority"))
    if not right <= constant:
        return None
    what = (
        f"answers {right:.1%} right at the average client, and always giving the client's own most common "
        f"answer gets {constant:.1%}"
    )
    cure = "try a model of each group's or client's own (clust_psi_pfl, finetune, local_only)"
    return Finding("own constant", method, tuple(runs), what, cure)


def _where(runs: Runs, holds: Callable[[Mapping[str, float]], bool]) -> tuple[int, ...]:
    return tuple(seed for seed, own in runs.items() if holds(own))


def _with(seeds: tuple[int, ...], runs: Runs) -> str:
    """Which seeds, if not all."""
    if len(seeds) == len(runs):
        return ""
    return f" with {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _mean(runs: Runs, key: str) -> float:
    return fmean(own.get(key, math.nan) for own in runs.values()) if runs else math.nan
