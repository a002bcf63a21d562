"""What the studies share: labels of real data, partitions of them, and rows that survive a restart."""

import csv
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import starmap
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.progress import track

from fedcohort.data import load
from fedcohort.data.partition import Partition, partitioner
from fedcohort.util.errors import UserError

HERE = Path(__file__).parent
ACS = {"path": "acs_pums/acs_pums_20states.csv.gz", "label": "pincp", "threshold": 50_000, "missing": "mean"}
SOURCES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "digits": ("digits", {}),
    "fmnist": ("fashion_mnist", {}),
    "sent140": ("sent140", {}),
    "acs": ("table", ACS),  # income above 50,000 in a sample of 20 states: not all of ACSIncome
}


def labels(name: str, root: Path | None) -> np.ndarray:
    """The training labels of a data set; UserError if its files are not there."""
    if name == "cifar10":  # 5,000 of each class, and nothing but labels matters here
        return np.repeat(np.arange(10), 5000)
    source, options = SOURCES[name]
    return load(source, root=root, **options).y.numpy()


def fingerprint(*tables: np.ndarray) -> str:
    """What tells whether rows were made of the same labels."""
    together = hashlib.sha256()
    for table in tables:
        together.update(table.astype(np.int64).tobytes())
    return together.hexdigest()


def deal(protocol: str, level: float, clients: int, seed: int, y: np.ndarray) -> Partition:
    """``y`` dealt by Clust-PSI-PFL's two protocols."""
    if protocol == "similarity":
        return partitioner("similarity", clients=clients, similarity=level)(y, seed)
    return partitioner("dirichlet_fedartml", clients=clients, alpha=level, min_size=1)(y, seed)


def collect(
    path: Path,
    keys: Sequence[str],
    jobs: Iterable[tuple[Any, ...]],
    work: Callable[..., Mapping[str, Any]],
    workers: int = 1,
) -> list[dict[str, str]]:
    """``work(*job)`` for every job, as rows of a CSV file; those that the file has are not done again.

    A row is written as soon as it is known, so that a study that was stopped goes on where it was. Several
    ``workers`` are processes, to which ``work`` must be able to travel.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = _read(path)
    done = {tuple(row[key] for key in keys) for row in rows}
    left = [job for job in dict.fromkeys(jobs) if tuple(map(str, job)) not in done]
    title = f"{path.stem} ({len(done)} rows are there)"
    with path.open("a", newline="", encoding="utf-8") as file, _answers(work, left, workers) as answers:
        for job, answer in zip(left, track(answers, title, len(left), disable=not left), strict=True):
            row = {**dict(zip(keys, job, strict=True)), **answer}
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
    return _read(path)


def timed(work: Callable[..., Mapping[str, Any]]) -> Callable[..., Mapping[str, Any]]:
    """``work`` that also says how many seconds it took."""

    def measured(*job: Any) -> Mapping[str, Any]:
        begun = perf_counter()
        return {**work(*job), "seconds": round(perf_counter() - begun, 2)}

    return measured


@contextmanager
def _answers(
    work: Callable[..., Mapping[str, Any]], jobs: Sequence[tuple[Any, ...]], workers: int
) -> Iterator[Iterable[Mapping[str, Any]]]:
    """What becomes of each job, in their order."""
    if workers == 1:
        yield starmap(work, jobs)
        return
    with get_context("spawn").Pool(workers) as pool:
        yield pool.imap(partial(_spread, work), jobs)


def _spread(work: Callable[..., Mapping[str, Any]], job: tuple[Any, ...]) -> Mapping[str, Any]:
    return work(*job)


def _read(path: Path) -> list[dict[str, str]]:
    """The whole rows of a file; the last is cut off if it was being written when the study was stopped."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        path.write_text(text, encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def available(names: Iterable[str], root: Path | None) -> dict[str, np.ndarray]:
    """The labels of those data sets that can be read; of the others, a word on why not."""
    found = {}
    for name in names:
        try:
            found[name] = labels(name, root)
        except UserError as error:
            print(f"{name} is left out: {error}")
    if not found:
        sys.exit("no data can be read: name their folder with --data or FEDCOHORT_DATA")
    return found


def spread(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) if len(values) > 1 else 0:.3f}"


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
