"""What a server costs in a federation of a million clients, and what its approximations cost in quality."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fedcohort.bench.million import WORK, refusals
from fedcohort.core.method import Method, make
from fedcohort.core.profile import Local
from fedcohort.core.round.loop import start, step
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation, Split
from fedcohort.engines.pool import PoolEngine

MIXES = 40  # kinds of clients
COHORT = 1000


def scale(repeats: int, clients: int = 1_000_000, classes: int = 100) -> dict[str, Any]:
    """Seconds and memory of reading, diagnosis, grouping and selection, of a round, and the effect of
    sampling."""
    with tempfile.TemporaryDirectory() as folder:
        tables = write_counts(Path(folder), clients, classes)
        done = {work: apart(work, tables["parquet"]) for work in WORK}
        csv = apart("nothing", tables["csv"])
    spent = {step: taken for each in done.values() for step, taken in each["spent"].items()}
    spent |= {"reading CSV": csv["spent"]["reading"]}
    return {
        "clients": clients,
        "classes": classes,
        "cohort": COHORT,
        "seconds": {step: taken["s"] for step, taken in spent.items()},
        "cpu_seconds": {step: taken["cpu_s"] for step, taken in spent.items()},
        "peak_gb": {work: each["peak_gb"] for work, each in done.items()} | {"CSV": csv["peak_gb"]},
        "refused": dict(enumerate(refusals(clients))),
        "round_ratio": round_ratio(repeats, clients),
        "approximations": approximations(),
    }


def apart(work: str, table: Path) -> dict[str, Any]:
    """What this work took in a process of its own."""
    command = [sys.executable, "-m", "fedcohort.bench.million", work, str(table)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)  # noqa: S603  # our own words
    return json.loads(done.stdout)


def write_counts(folder: Path, clients: int, classes: int) -> dict[str, Path]:
    """A table of counts, as a user would have it."""
    import polars as pl

    counts = counts_of(clients, classes).astype(np.int32)
    columns = {f"class {label}": counts[:, label] for label in range(classes)}
    frame = pl.DataFrame({"client": [f"client {number}" for number in range(clients)], **columns})
    tables = {kind: folder / f"counts.{kind}" for kind in ("parquet", "csv")}
    frame.write_parquet(tables["parquet"])
    frame.write_csv(tables["csv"])
    return tables


def round_ratio(repeats: int, clients: int, few: int = 10_000) -> dict[str, Any]:
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
    """What is sampled in large federations, where the exact answer is known as well.

    Groupings, of twice as many clients as the sample has, are compared by the adjusted Rand index: with the
    exact one, and both with the mixes from which clients were drawn.
    """
    from fedcohort.methods import fedcls, fedentopt
    from fedcohort.stats import clustering
    from fedcohort.stats.label_distances import hellinger_points
    from fedcohort.stats.label_groups import psi_features, standardise
    from fedcohort.stats.metrics import adjusted_rand, cohort_entropy

    def of_psi(counts: np.ndarray, exact: int) -> np.ndarray:
        features = standardise(psi_features(counts)).features
        return clustering.kmeans_by_silhouette(features, 20, 0, exact=exact).labels

    def by_density(counts: np.ndarray, exact: int) -> np.ndarray:
        return clustering.optics_groups(hellinger_points(counts), exact=exact)

    found = {}
    for name, group, most in (("OPTICS", by_density, clustering.EXACT), ("K-means", of_psi, clustering.MANY)):
        counts, truth = counts_of(2 * most, 10), np.arange(2 * most) % MIXES
        sampled, exact = group(counts, most), group(counts, 2 * most)
        about = f"{name} on {most:,} of {2 * most:,} clients"
        found[f"{about}, with that on all"] = adjusted_rand(sampled, exact)
        found[f"{about}, with the mixes"] = adjusted_rand(sampled, truth)
        found[f"{name} on all {2 * most:,}, with the mixes"] = adjusted_rand(exact, truth)
    counts = counts_of(clients, 10)
    table, everybody, cohort = torch.from_numpy(counts), torch.arange(clients), 100
    even, far = (
        cast(fedentopt.FedEntOpt, make("fedentopt", {})[0]),
        cast(fedcls.FedCLS, make("fedcls", {})[0]),
    )
    bits, gaps = [], []
    for first in range(10):
        key = torch.Generator().manual_seed(first)
        best = even.grow(first, everybody, table, cohort)
        quick = even.grow(first, everybody, table, cohort, key, clients // 20)
        bits.append(cohort_entropy(counts[best]) - cohort_entropy(counts[quick]))
        some = torch.cat(
            [torch.tensor([first]), first + 1 + torch.randperm(clients - first - 1, generator=key)]
        )
        some = some[: clients // 20].sort().values
        wide, narrow = (far.grow(first, who, table > 0, cohort // 10) for who in (everybody, some))
        gaps.append(_nearest_pair(table[wide] > 0) - _nearest_pair(table[narrow] > 0))
    found["FedEntOpt looking at a twentieth of the clients, bits of cohort entropy lost"] = statistics.fmean(
        bits
    )
    found["FedCLS's complement of a twentieth, classes lost between the two most alike"] = statistics.fmean(
        gaps
    )
    return {name: round(value, 5) for name, value in found.items()}


def _nearest_pair(holds: torch.Tensor) -> float:
    differ = (holds[:, None] != holds[None]).sum(2) + holds.shape[1] * torch.eye(len(holds)).long()
    return float(differ.min())


def counts_of(clients: int, classes: int) -> np.ndarray:
    """Sixty examples for each client, from one of forty label mixes."""
    rng = np.random.default_rng(0)
    mixes = rng.dirichlet([0.1] * classes, size=MIXES)
    return np.stack([rng.multinomial(60, mixes[k % MIXES]) for k in range(clients)]).astype(float)


def _task(clients: int, samples: int = 32) -> Task:
    """Clients of 32 examples each, all drawn from the same few thousand."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.standard_normal((4_096, 1, 28, 28), dtype=np.float32))
    y = torch.from_numpy(rng.integers(0, 10, 4_096))
    index = torch.from_numpy(rng.integers(0, len(y), clients * samples))
    train = Split(x, y, index, samples * torch.arange(clients + 1))
    held = Split(x, y, index[:0], torch.zeros(clients + 1, dtype=torch.long))
    classes, names = (tuple(map(str, range(count))) for count in (10, clients))
    federation = Federation(train, held, held, classes, names, None, {"job": "scale"})
    return Task.of(federation, "mlp", local=Local(lr=0.01, batch=16), cohort=COHORT)
