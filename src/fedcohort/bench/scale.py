"""What the server costs in a federation of very many clients, and what its approximations cost in quality."""

import resource
import statistics
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch

from fedcohort.core.method import Method, make
from fedcohort.core.profile import Local, Profile
from fedcohort.core.records import Round
from fedcohort.core.roles import Grouping, Selector
from fedcohort.core.roles.optional import Polls
from fedcohort.core.round.loop import start, step
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.pool import PoolEngine

SELECTORS = ("fedentopt", "power_of_choice", "fedlecc", "haccs", "fedcls")
COHORT = 100


def scale(repeats: int, clients: int = 100_000, classes: int = 100) -> dict[str, Any]:
    """Seconds and memory of diagnosis, grouping and selection, of a round, and the effect of sampling."""
    return {
        "clients": clients,
        "classes": classes,
        "seconds": server_seconds(clients, classes),
        "round_ratio": round_ratio(repeats, clients),
        "approximations": approximations(),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def server_seconds(clients: int, classes: int) -> dict[str, float]:
    """Of one call each."""
    from fedcohort.diagnosis import diagnose

    counts, seconds = _counts(clients, classes), {}
    profile = _profile(counts)
    losses = torch.from_numpy(np.random.default_rng(1).random(clients))
    now = Round(0, profile, 0, torch.arange(clients), COHORT)

    def timed(name: str, work: Callable[..., Any], *arguments: Any) -> Any:
        since = time.perf_counter()
        out = work(*arguments)
        seconds[name] = round(time.perf_counter() - since, 2)
        return out

    timed("diagnose", diagnose, counts)
    timed("clust_psi_pfl grouping", cast(Grouping, make("clust_psi_pfl", {})[0]).init_grouping, profile)
    for name in SELECTORS:
        selector = cast(Selector, make(name, {})[0])
        memory = timed(f"{name} set-up", selector.init_selector, profile)
        polled = None
        if isinstance(selector, Polls):
            polled = timed(f"{name} candidates", selector.candidates, memory, now)
        known = torch.full_like(losses, torch.nan)
        known[now.members if polled is None else polled] = losses[now.members if polled is None else polled]
        timed(f"{name} selection", selector.select, memory, now, known)
    return seconds


def round_ratio(repeats: int, clients: int, few: int = 1_000) -> dict[str, Any]:
    """A round of the same cohort size out of many clients against one out of few, in turns."""
    method = Method.parse("fedavg")
    tasks = [_task(count) for count in (few, clients)]
    profiles = [task.profile(method) for task in tasks]
    engines = [PoolEngine(task) for task in tasks]
    states = [start(method, task, profile) for task, profile in zip(tasks, profiles, strict=True)]
    times: list[list[float]] = [[], []]
    for _ in range(3 + 3 * repeats):
        for which in (0, 1):
            since = time.perf_counter()
            task, profile, engine = tasks[which], profiles[which], engines[which]
            states[which], _ = step(method, states[which], task, profile, engine)
            times[which].append(time.perf_counter() - since)
    pairs = [many / small for small, many in zip(times[0][3:], times[1][3:], strict=True)]
    small, many = (round(1000 * statistics.median(taken[3:]), 1) for taken in times)
    return {f"ms_of_{few}": small, f"ms_of_{clients}": many, "ratio": round(statistics.median(pairs), 2)}


def approximations(clients: int = 2_000) -> dict[str, float]:
    """What is sampled in large federations, sampled at a size where the exact answer is known as well."""
    from fedcohort.methods import fedentopt
    from fedcohort.stats import clustering
    from fedcohort.stats.label_distances import hellinger_points
    from fedcohort.stats.metrics import adjusted_rand, cohort_entropy

    counts = _counts(clients, 10)
    points = hellinger_points(counts)
    exact = clustering.optics_groups(points, exact=clients)
    sampled = clustering.optics_groups(points, exact=clients // 3)
    table, method = torch.from_numpy(counts), cast(fedentopt.FedEntOpt, make("fedentopt", {})[0])
    everybody, loss = torch.arange(clients), []
    for first in range(10):
        key = torch.Generator().manual_seed(first)
        best = method.grow(first, everybody, table, COHORT)
        quick = method.grow(first, everybody, table, COHORT, key, clients // 20)
        loss.append(cohort_entropy(counts[best]) - cohort_entropy(counts[quick]))
    return {
        "OPTICS on a third of the clients, adjusted Rand index with OPTICS on all": round(
            adjusted_rand(sampled, exact), 3
        ),
        "FedEntOpt looking at a twentieth of the clients, bits of cohort entropy lost": round(
            statistics.fmean(loss), 5
        ),
    }


def _counts(clients: int, classes: int) -> np.ndarray:
    """Sixty examples for each client, from one of forty label mixes."""
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet([0.1] * classes, size=40)
    return np.stack([rng.multinomial(60, mixes[k % 40]) for k in range(clients)]).astype(float)


def _profile(counts: np.ndarray) -> Profile:
    nobody = torch.zeros(len(counts), dtype=torch.long)
    size = torch.from_numpy(counts.sum(1)).long()
    model: Any = None  # grouping and selection look at labels only
    return Profile(size, nobody, torch.from_numpy(counts), counts.shape[1], model, Local(), seed=0)


def _task(clients: int, samples: int = 32) -> Task:
    """Clients of 32 examples each, all drawn from the same few thousand."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((4_096, 1, 28, 28), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, 4_096))
    rows = rng.integers(0, len(y), (clients, samples))
    none = [np.zeros(0, dtype=np.int64)] * clients
    names = tuple(map(str, range(clients)))
    train, held = Split.of(x, y, list(rows)), Split.of(x, y, none)
    classes = tuple(map(str, range(10)))
    federation = Federation(train, held, held, classes, names, None, {"job": "scale"})
    return Task.of(federation, "mlp", local=Local(lr=0.01, batch=16), cohort=COHORT)
