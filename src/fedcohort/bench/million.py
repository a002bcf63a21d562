"""One thing that a server does with the label counts of very many clients, in a process of its own.

``python -m fedcohort.bench.million WORK COUNTS.parquet`` prints what it took; :mod:`.scale` starts it, so
that the memory of one is not that of another.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from fedcohort.core.method import Method, make
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Ids, Round
from fedcohort.core.roles import Grouping, Selector
from fedcohort.core.roles.optional import Polls
from fedcohort.diagnosis import Counts, diagnose, read_counts
from fedcohort.util.errors import UserError
from fedcohort.util.expression import parse
from fedcohort.util.keyed import generator

SELECTORS = (  # those in a row share their set-up
    ("uniform",), ("explore",), ("power_of_choice",), ("kl",), ("fedentropy",), ("fedentopt",), ("haccs",),
    ("fedcls", "fedcls(complement=True)"),
)  # fmt: skip
FEDLECC = ("fedlecc", "fedlecc(clusters_per_round='auto')")
PAIRWISE = ("fedcor", "fedgwc", "fedlecc(clustering='kmedoids')")  # want a number for every two clients
Spent = dict[str, dict[str, float]]  # wall-clock and CPU seconds of each step


class Stopwatch:
    """Collects what steps take."""

    def __init__(self) -> None:
        self.spent: Spent = {}

    def __call__(self, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        out = work(*arguments)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.spent[name] = {"s": round(wall, 2), "cpu_s": round(cpu, 2)}
        return out


def grouping(counts: Counts, timed: Stopwatch) -> None:
    part = cast(Grouping, make("clust_psi_pfl", {})[0])
    timed("clust_psi_pfl grouping", part.init_grouping, profile_of(counts))


def selectors(counts: Counts, timed: Stopwatch) -> None:
    """All but FedLECC, whose clusters take a while."""
    profile = profile_of(counts)
    for texts in SELECTORS:
        choose(texts, profile, timed)


def choose(texts: Sequence[str], profile: Profile, timed: Stopwatch, cohort: int = 1000) -> None:
    """A set-up, and a selection by each."""
    parts = [cast(Selector, make(*parse(text)[0])[0]) for text in texts]
    memory = timed(f"{texts[0]} set-up", parts[0].init_selector, profile)
    everybody = torch.arange(profile.num_clients)
    now = Round(0, profile, 0, everybody, min(cohort, profile.num_clients))
    losses = torch.rand(profile.num_clients, generator=generator(1, "losses"))

    def select(selector: Selector) -> Ids:
        asked = selector.candidates(memory, now) if isinstance(selector, Polls) else None
        known = torch.full_like(losses, torch.nan)
        known[everybody if asked is None else asked] = losses[everybody if asked is None else asked]
        return selector.select(memory, now, None if asked is None else known)

    for text, selector in zip(texts, parts, strict=True):
        timed(f"{text} selection", select, selector)


def profile_of(counts: Counts) -> Profile:
    """What a server knows that was told label counts and nothing else."""
    table = torch.from_numpy(counts.matrix).double()
    size, model = table.sum(1).long(), cast(Any, None)  # grouping and selection look at labels only
    return Profile(size, torch.zeros_like(size), table, table.shape[1], model, Local(), seed=0)


def refusals(clients: int) -> list[str]:
    """What methods say that want a number for every two clients."""
    size = torch.ones(clients, dtype=torch.long)
    profile = Profile(size, size, size[:, None].double(), 1, cast(Any, None), Local(), seed=0)
    return [_refusal(text, profile) for text in PAIRWISE]


def _refusal(text: str, profile: Profile) -> str:
    try:
        Method.parse(text).check(profile)
    except UserError as error:
        return str(error)
    return f"{text} is not refused"


WORK: dict[str, Callable[[Counts, Stopwatch], Any]] = {
    "nothing": lambda counts, timed: None,  # but reading
    "diagnose": lambda counts, timed: timed("diagnose", diagnose, counts.matrix, counts.client_names),
    "clust_psi_pfl": grouping,
    "fedlecc": lambda counts, timed: choose(FEDLECC, profile_of(counts), timed),
    "selectors": selectors,
}


def main() -> None:
    import resource  # Windows has none

    work, path = sys.argv[1:]
    torch.set_num_threads(1)
    timed = Stopwatch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        WORK[work](timed("reading", read_counts, path), timed)
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)  # from KiB
    print(json.dumps({"spent": timed.spent, "peak_gb": peak}))


if __name__ == "__main__":
    main()
