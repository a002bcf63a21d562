"""What a report rests on: runs read back from their directories, complete or still going on."""

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcohort.core.evaluate import ANSWERS, Row
from fedcohort.core.roles import Grouping
from fedcohort.report.style import look
from fedcohort.runs.about import About
from fedcohort.runs.outcomes.conditions import combinations, joins
from fedcohort.runs.outcomes.flat import Settings
from fedcohort.runs.outcomes.results import placed_in
from fedcohort.runs.outcomes.standings import Outcome, Standing, rank
from fedcohort.runs.run import final_metrics
from fedcohort.runs.stored import AGAIN, TABLE, RunDir, RunSettings, runs_in
from fedcohort.stats.label_distances import Array
from fedcohort.util.errors import UserError
from fedcohort.util.files import damaged

Ints = NDArray[np.int64]
Curve = tuple[Array, Array]  # rounds, values
Confusion = Counter[tuple[int, int]]  # test samples by their class and the answer, as places among classes


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

    home: RunDir
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
    rounds: int  # completed
    by_group: dict[tuple[str, int], Curve] = field(default_factory=dict)  # what its grouping tells
    answers: dict[int, Counter[tuple[int, int]]] = field(
        default_factory=dict
    )  # of a group, by class and answer
    settings: Settings = field(default_factory=dict)  # the conditions, where runs of its comparison differ

    @property
    def directory(self) -> Path:
        return self.home.directory

    @property
    def asked(self) -> RunSettings:
        return self.home.settings

    @property
    def about(self) -> About:
        return self.home.about

    @property
    def grouping(self) -> Grouping | None:
        """None where it does not come with fedcohort, and so is not executed."""
        return self.home.grouping

    @cached_property
    def trained(self) -> Ints:
        """[K] rounds in which each client's update was used."""
        used = self.visits[self.visits[:, 3] > 0, 1]
        return np.bincount(used, minlength=len(self.clients))

    @cached_property
    def everybody(self) -> bool:
        """Whether all clients were to train in every round: then there is nobody to select."""
        return len(self.visits) >= self.rounds * len(self.clients)

    @property
    def tags(self) -> dict[str, str]:
        """Of what a page shows about this run alone."""
        return {"method": self.title, "seed": str(self.seed)}

    @property
    def outcome(self) -> Outcome:
        known = self.title, self.seed, self.directory, self.metrics
        return Outcome(*known, settings=self.settings, ranked_by=self.asked.ranked_by)


@dataclass(frozen=True, eq=False)
class Evidence:
    """All runs of a report and the labels of their federations."""

    runs: tuple[Run, ...]
    labels: dict[str, Labels | str]  # by fingerprint: the counts, or why there are none
    left_out: tuple[str, ...] = ()  # which runs cannot be read, and why
    whole: "Evidence | None" = None  # of which these are the runs under one condition

    @property
    def titles(self) -> list[str]:
        return list(dict.fromkeys(run.title for run in self.runs))

    @property
    def settings(self) -> Settings:
        """The condition of a part."""
        return self.runs[0].settings if self.whole is not None else {}

    @cached_property
    def ranked(self) -> list[Standing]:
        """The methods, best first: nearly every card asks for them."""
        return rank([run.outcome for run in self.runs])

    @cached_property
    def parts(self) -> "list[Evidence]":
        """The runs under each condition; where there is one, all."""
        conditions = combinations([run.settings for run in self.runs])
        if len(conditions) == 1:
            return [self]
        found = []
        for told in conditions:
            runs = (replace(run, settings=told) for run in self.runs if joins(run.settings, told))
            found.append(replace(self, runs=tuple(runs), whole=self))
        return found

    @property
    def shown(self) -> int:
        """How many runs the page has to show."""
        return sum(len(part.runs) for part in self.whole.parts) if self.whole else len(self.runs)

    def look(self, title: str) -> dict[str, Any]:
        """The line of a method, the same under every condition."""
        return look((self.whole or self).titles.index(title), title in self.references)

    @property
    def pooled(self) -> frozenset[str]:
        """Of the titles, those that need all data in one place, so that no client could use them."""
        return frozenset(run.title for run in self.runs if run.about.pooled)

    @property
    def references(self) -> frozenset[str]:
        """Of the titles, those that are no federated learning: all data in one place, or everybody alone."""
        return frozenset(run.title for run in self.runs if run.about.pooled or run.about.silent)

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def labels_of(self, run: Run) -> Labels | str:
        """Of the run's clients, in its order."""
        known = self.labels[run.facts["fingerprint"]]
        if isinstance(known, str) or known.clients == run.clients:
            return known
        place = {name: row for row, name in enumerate(known.clients)}
        if not place.keys() >= {*run.clients}:
            return "Label counts were told by other clients than these, so nothing is said about labels."
        rows = [place[name] for name in run.clients]
        return replace(known, counts=known.counts[rows], clients=run.clients)

    def clients_of(self, run: Run) -> int:
        """How many there are; of a run that goes on far from its labels, how many it has met."""
        known = self.labels[run.facts["fingerprint"]]
        return len(known.clients if isinstance(known, Labels) else run.clients)


def gather(directories: Sequence[Path]) -> Evidence:
    """Every run in these directories, each of one run or of a comparison, that has ended a round. One that is
    damaged is left out, and named."""
    left_out: list[str] = []
    found: list[Run] = []
    for home in runs_in(directories, left_out):
        try:
            if (run := _read(home)) is not None:
                found.append(run)
        except UserError as error:
            left_out.append(str(error))
    if not found:
        first = directories[0] if directories else "it"
        nothing = f"{first}: no run has completed a round yet; wait, or continue it with run --resume"
        raise UserError(left_out[0] if left_out else nothing)
    for why in dict.fromkeys(left_out):
        warnings.warn(f"a run is left out: {why}", RuntimeWarning, stacklevel=2)
    runs = _distinct(found)
    return Evidence(runs, _labels(runs), tuple(dict.fromkeys(left_out)))


def _read(home: RunDir) -> Run | None:
    if not (home.directory / TABLE).exists():
        return None
    complete = home.complete
    rows = home.rows(growing=not complete)
    if not rows:
        return None
    curves: dict[str, tuple[list[int], list[float]]] = {}
    for row in rows:
        if row.overall:
            when, values = curves.setdefault(row.key, ([], []))
            if when and when[-1] == row.round:
                raise damaged(home.directory / TABLE, f"round {row.round} has two numbers {row.key}", AGAIN)
            when.append(row.round)
            values.append(row.value)
    return Run(
        home,
        home.settings.title,
        home.settings.seed,
        complete,
        home.environment(),
        final_metrics(rows),
        {key: (np.array(when, float), np.array(values)) for key, (when, values) in curves.items()},
        *_clients(rows),
        rounds=rows[-1].round,
        by_group=_by_group(rows),
        answers=_answers(rows, home.directory / TABLE),
    )


def _by_group(rows: Sequence[Row]) -> dict[tuple[str, int], Curve]:
    points: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in rows:
        if row.group and not row.client and row.scope != ANSWERS:
            points.setdefault((row.metric, int(row.group)), []).append((row.round, row.value))
    return {key: (found[0], found[1]) for key, found in ((key, np.array(p).T) for key, p in points.items())}


def _answers(rows: Sequence[Row], path: Path) -> dict[int, Confusion]:
    """Of each group, as the last round that tells has them."""
    told = [row for row in rows if row.scope == ANSWERS]
    found: dict[int, Confusion] = {}
    for row in told:
        cell = re.fullmatch(r"answers\[(\d\d?)\]\[(\d\d?)\]", row.metric)
        if cell is None or not 0 <= row.value <= 2.0**53:
            raise damaged(path, f"{row.metric:.40} is no count of answers", AGAIN)
        if row.round == told[-1].round:
            found.setdefault(int(row.group), Counter())[int(cell[1]), int(cell[2])] = int(row.value)
    return found


def _clients(rows: Sequence[Row]) -> tuple[tuple[str, ...], Ints, Array, Array, Ints]:
    """Names, groups, accuracies, test sizes and visits, from the rows that name a client."""
    own = [row for row in rows if row.client]
    tested = [row for row in own if row.scope == "personal"]
    place = {name: number for number, name in enumerate(dict.fromkeys(row.client for row in tested or own))}
    group = np.zeros(len(place), dtype=np.int64)
    accuracy, size = np.full(len(place), np.nan), np.zeros(len(place))
    visits = [
        (row.round, place[row.client], int(row.group), int(row.value > 0))
        for row in own
        if row.scope == "cohort" and row.client in place
    ]
    for row in own:
        if row.client in place:
            group[place[row.client]] = int(row.group)
    for row in tested:
        if row.metric in ("accuracy", "test_size"):
            (accuracy if row.metric == "accuracy" else size)[place[row.client]] = row.value
    return tuple(place), group, accuracy, size, np.array(visits, dtype=np.int64).reshape(-1, 4)


def _distinct(runs: list[Run]) -> tuple[Run, ...]:
    """Runs of one comparison differ by its conditions. Of several, runs of one method get titles that tell
    their directories apart if they are no seeds of one thing: the seed is the same, or any other setting is
    not."""
    homes = {run.directory.parent for run in runs}
    if len(homes) == 1:
        placed = placed_in([run.home for run in runs])
        return tuple(
            replace(run, title=own.method, settings=own.settings)
            for run, own in zip(runs, placed, strict=True)
        )
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
    return {key: value for key, value in run.asked.table.items() if key not in ("name", "seeds")}


def _labels(runs: Sequence[Run]) -> dict[str, Labels | str]:
    by_data: dict[str, list[Run]] = {}
    for run in runs:
        by_data.setdefault(run.facts["fingerprint"], []).append(run)
    return {fingerprint: _labels_of(own) for fingerprint, own in by_data.items()}


def _labels_of(runs: Sequence[Run]) -> Labels | str:
    """As the strictest of these runs, which had the same data, let the server see them."""
    if any(run.about.elsewhere for run in runs):
        return "The clients of these runs and their data were elsewhere, so nothing is said about labels."
    strictest = max(runs, key=lambda run: run.about.privacy.strictness)
    privacy = strictest.about.privacy
    if privacy.counts == "withheld":
        return "Label counts were withheld in these runs (privacy.counts), so the report has none either."
    try:
        known = strictest.home.revealed()
    except UserError as error:
        return f"The label counts of these runs are not at hand, so nothing is said about labels ({error})."
    if known.counts is None:
        return "Label counts were withheld in these runs, so the report has none either."
    note = f"Label counts carry the noise under which clients reveal them (epsilon {privacy.epsilon:g})."
    noised = privacy.counts == "noised"
    return Labels(known.counts.numpy(), known.clients, known.classes, note if noised else "")
