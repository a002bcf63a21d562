"""What a report rests on: runs read back from their directories, complete or still going on."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.comparison import Job, Outcome, reopen
from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.diagnosis.distances import Array
from fedcohort.errors import UserError
from fedcohort.evaluate import Row
from fedcohort.experiment import Experiment
from fedcohort.record import ROSTER, read_result, read_table
from fedcohort.runner import final_metrics
from fedcohort.status import runs_of

Ints = NDArray[np.int64]
Curve = tuple[Array, Array]  # rounds, values
STRICTNESS = ("exact", "noised", "withheld")  # of Privacy.counts


@dataclass(frozen=True, eq=False)
class Labels:
    """Label counts of a federation, no more exact than the most private of its runs let the server see."""

    counts: Array  # [K, C]
    clients: tuple[str, ...]
    classes: tuple[str, ...]
    note: str = ""  # how they differ from the truth, if they do


@dataclass(frozen=True, eq=False)
class Run:
    """One run. Clients are numbered as in ``clients``: of a run that goes on, those met so far."""

    directory: Path
    experiment: Experiment
    method: Method
    title: str
    seed: int
    complete: bool
    facts: dict[str, Any]  # env.json
    metrics: dict[str, float]  # the last value of each number about the whole federation
    curves: dict[str, Curve]
    clients: tuple[str, ...]
    group: Ints  # [K] at the end
    accuracy: Array  # [K] on a client's own test samples; NaN where unknown
    test_size: Array  # [K]
    visits: Ints  # [n, 4]: round, client, its group then, whether its update was used

    @property
    def rounds(self) -> int:
        """Rounds completed."""
        return int(max((when[-1] for when, _ in self.curves.values()), default=0))

    @cached_property
    def trained(self) -> Ints:
        """[K] rounds in which each client's update was used."""
        used = self.visits[self.visits[:, 3] > 0, 1]
        return np.bincount(used, minlength=len(self.clients))

    @property
    def tags(self) -> dict[str, str]:
        """Of what a page shows about this run alone."""
        return {"method": self.title, "seed": str(self.seed)}

    @property
    def privacy(self) -> Privacy:
        return self.method.privacy(self.experiment.privacy)

    @property
    def outcome(self) -> Outcome:
        return Outcome(self.title, self.seed, self.directory, self.metrics)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All runs of a report and the labels of their federations."""

    runs: tuple[Run, ...]
    labels: dict[str, Labels | str]  # by fingerprint: the counts, or why there are none

    @property
    def titles(self) -> list[str]:
        return list(dict.fromkeys(run.title for run in self.runs))

    @property
    def references(self) -> frozenset[str]:
        """Of the titles, those that are no federated learning: all data in one place, or everybody alone."""
        return frozenset(run.title for run in self.runs if run.method.pooled or run.method.silent)

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def labels_of(self, run: Run) -> Labels | str:
        """Of the run's clients, in its order."""
        known = self.labels[run.facts["fingerprint"]]
        if isinstance(known, str) or known.clients == run.clients:
            return known
        place = {name: row for row, name in enumerate(known.clients)}
        rows = [place[name] for name in run.clients]
        return replace(known, counts=known.counts[rows], clients=run.clients)

    def clients_of(self, run: Run) -> int:
        """How many there are; of a run that goes on far from its labels, how many it has met."""
        known = self.labels[run.facts["fingerprint"]]
        return len(known.clients if isinstance(known, Labels) else run.clients)


def gather(directories: Sequence[Path]) -> Evidence:
    """Every run in these directories, each of one run or of a comparison, that has ended a round."""
    found: dict[Path, Run] = {}
    for job, experiment in chain(*map(_jobs, directories)):
        where = job.directory.resolve()
        if where not in found and (run := _read(experiment, job)) is not None:
            found[where] = run
    if not found:
        first = directories[0] if directories else "it"
        raise UserError(f"{first}: no run has completed a round yet; wait, or continue it with run --resume")
    runs = _distinct(list(found.values()))
    return Evidence(runs, _labels(runs))


def _jobs(directory: Path) -> Iterator[tuple[Job, Experiment]]:
    """The runs of a directory in the order in which they were asked for. Their names depend on every setting
    that there is, so runs of an older fedcohort may have others: they are found by what they are."""
    plan = reopen(directory)
    for job in plan.jobs:
        yield job, plan.experiment
    asked = {job.directory.resolve() for job in plan.jobs}
    for path in runs_of(directory):
        if path.resolve() not in asked:
            other = reopen(path)
            yield other.jobs[0], other.experiment


def _read(experiment: Experiment, job: Job) -> Run | None:
    directory, method = job.directory, job.method
    table = directory / "table.csv"
    if not table.exists():
        return None
    complete = read_result(directory) is not None
    rows = read_table(table, growing=not complete)
    if not rows:
        return None
    curves: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        if not row.client:
            when, values = curves.setdefault(row.key, ([], []))
            when.append(row.round)
            values.append(row.value)
    return Run(
        directory,
        experiment,
        method,
        method.title,
        job.seed,
        complete,
        _facts(directory / "env.json"),
        final_metrics(rows),
        {key: (np.array(when, float), np.array(values)) for key, (when, values) in curves.items()},
        *_clients(rows),
    )


def text_of(path: Path) -> str:
    """A file of a run, which somebody may have removed."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({getattr(error, 'strerror', error)}): restore it") from None


def _facts(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(text_of(path))
        return facts
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): restore it") from None


def _clients(rows: Sequence[Row]) -> tuple[tuple[str, ...], Ints, Array, Array, Ints]:
    """Names, groups, accuracies, test sizes and visits, from the rows that name a client."""
    own = [row for row in rows if row.client]
    tested = [row for row in own if row.scope == "personal"]
    place = {name: number for number, name in enumerate(dict.fromkeys(row.client for row in tested or own))}
    group = np.zeros(len(place), dtype=np.int64)
    accuracy, size = np.full(len(place), np.nan), np.zeros(len(place))
    visits = [
        (row.round, place[row.client], int(row.group), int(row.value)) for row in own if row.scope == "cohort"
    ]
    for row in own:
        group[place[row.client]] = int(row.group)
    for row in tested:
        (accuracy if row.metric == "accuracy" else size)[place[row.client]] = row.value
    return tuple(place), group, accuracy, size, np.array(visits, dtype=np.int64).reshape(-1, 4)


def _distinct(runs: list[Run]) -> tuple[Run, ...]:
    """Runs of one method get titles that tell their directories apart if they are no seeds of one thing: the
    seed is the same, or any other setting is not."""
    shared = Counter((run.title, run.seed) for run in runs)
    ambiguous = {title for (title, _), count in shared.items() if count > 1}
    asked: dict[str, dict[str, Any]] = {}
    ambiguous |= {run.title for run in runs if asked.setdefault(run.title, _settings(run)) != _settings(run)}
    homes = {run.directory.parent for run in runs if run.title in ambiguous}
    short = len({home.name for home in homes}) == len(homes)

    def title(run: Run) -> str:
        home = run.directory.parent
        return f"{run.title}, {home.name if short else home}" if run.title in ambiguous else run.title

    return tuple(replace(run, title=title(run)) for run in runs)


def _settings(run: Run) -> dict[str, Any]:
    """All that a run was asked but its seed."""
    table = run.experiment.table(run.method, run.seed)
    return {key: value for key, value in table.items() if key not in ("name", "seeds")}


def _labels(runs: Sequence[Run]) -> dict[str, Labels | str]:
    by_data: dict[str, list[Run]] = {}
    for run in runs:
        by_data.setdefault(run.facts["fingerprint"], []).append(run)
    return {fingerprint: _deal(fingerprint, own) for fingerprint, own in by_data.items()}


def _deal(fingerprint: str, runs: Sequence[Run]) -> Labels | str:
    """The run directory of a simulation holds no label counts; they are dealt again from the data, if these
    are at hand."""
    if (runs[0].directory / ROSTER).exists():
        return "The clients of these runs and their data were elsewhere, so nothing is said about labels."
    strictest = max((run.privacy for run in runs), key=lambda p: (STRICTNESS.index(p.counts), -p.epsilon))
    if strictest.counts == "withheld":
        return "Label counts were withheld in these runs (privacy.counts), so the report has none either."
    try:
        federation = runs[0].experiment.federation(runs[0].seed)
    except UserError as error:
        return f"The data of these runs are not at hand, so nothing is said about labels ({error})."
    if federation.fingerprint() != fingerprint:
        return "The data changed since these runs, so nothing is said about labels."
    revealed = strictest.reveal(federation.counts, runs[0].seed)
    assert revealed is not None  # noqa: S101  # withheld was dealt with above
    note = f"Label counts carry the noise under which clients reveal them (epsilon {strictest.epsilon:g})."
    noised = strictest.counts == "noised"
    return Labels(revealed.numpy(), federation.clients, federation.classes, note if noised else "")
