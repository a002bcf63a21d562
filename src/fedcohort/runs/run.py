"""One run: a method on a task for a number of rounds, with results as they come."""

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedcohort.core.engine import Ahead, Engine
from fedcohort.core.evaluate import Row, adapted_rows, evaluation_rows, round_rows
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.round.loop import Report, start, step
from fedcohort.core.round.merge import too_short
from fedcohort.core.round.preparation import orders_ahead
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.engines.choice import Means
from fedcohort.presets import read_method
from fedcohort.runs.evaluation import Evaluation
from fedcohort.runs.over_rounds import ACCURACY, diverged, run_rows, smoothed_row
from fedcohort.stats.metrics import surpasses

PER_ROUND = "clients_per_round"
SUMMED = (ACCURACY, "global.loss", "cohort", "train_loss", "rejected")  # what the end of a run looks back at


class Callback:
    """Told of a run, round by round. It does nothing; others override what they want to know."""

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        """A true answer ends the run early."""
        return False

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        """After the last of all rounds: what a run of more rounds would not have told at this one."""

    def close(self, state: State) -> None:
        """At the end, whatever ended it."""


@dataclass(frozen=True)
class Result:
    """The end of a run."""

    method: Method
    state: State
    rows: list[Row]  # the long table
    metrics: dict[str, float]  # the last value of each number about the whole federation


def run(
    method: Method | str,
    task: Task,
    rounds: int,
    evaluation: Evaluation | None = None,
    callbacks: Iterable[Callback] = (),
    resume: tuple[State, list[Row]] | None = None,
    engine: Callable[[Task], Engine] | None = None,
    folder: Path | None = None,
) -> Result:
    """Trains and evaluates; with ``resume`` (a state and the rows before it), continues to the identical
    end. ``folder`` is where clients' memories go if they are too many to keep (None: a temporary one)."""
    method = read_method(method) if isinstance(method, str) else method
    evaluation, callbacks = evaluation or Evaluation(), tuple(callbacks)
    if caution := too_short(method.grouping, rounds):
        warnings.warn(caution, RuntimeWarning, stacklevel=2)
    evaluation.check(task.federation.num_classes, method.privacy(task.privacy))
    task = task.for_method(method)
    profile, workers = task.profile(method), (engine or Means().engine_for)(task)
    state, table = resume or (start(method, task, profile, folder), [])
    table = list(table)
    measures = _Measures(evaluation, method, task, profile, workers)
    measures.see(table)
    ending: list[Row] | None = None
    try:
        while state.round < rounds:
            sent = workers.messages
            state, report = step(method, state, task, profile, workers)
            rows, last = round_rows(method, report, state, task, profile), state.round == rounds
            measures.see(rows)
            if last or state.round % evaluation.every == 0:
                elsewhere = bool(workers.messages) and not last
                ahead = orders_ahead(method, state, task, profile) if elsewhere else None
                found, ending = measures.take(state, last, ahead)
                measures.see(found)
                rows += found
            if workers.messages > sent:
                rows.append(Row(state.round, "round", "", "", "messages", float(workers.messages - sent)))
            table += rows
            wishes = [callback.after_round(state, report, rows) for callback in callbacks]
            if any(wishes):
                break
        if state.round == rounds:
            ending = measures.take(state, last=True)[1] if ending is None else ending
            table += ending
            for callback in callbacks:
                callback.conclude(state, ending)
    finally:
        for callback in callbacks:
            callback.close(state)
    return Result(method, state, table, final_metrics(table))


class _Measures:
    """What is measured of a run: at evaluated rounds, and at its end."""

    def __init__(
        self, evaluation: Evaluation, method: Method, task: Task, profile: Profile, engine: Engine
    ) -> None:
        self.evaluation, self.method, self.task = evaluation, method, task
        self.profile, self.engine = profile, engine
        self.seen: dict[str, list[Row]] = {key: [] for key in SUMMED}

    def see(self, rows: Iterable[Row]) -> None:
        """Keeps what the end of the run sums up."""
        for row in rows:
            if row.overall and row.key in self.seen:
                self.seen[row.key].append(row)

    def take(self, state: State, last: bool, ahead: Ahead | None = None) -> tuple[list[Row], list[Row]]:
        """How the models do after a round, and what is told only because it is the last: a line for every
        client, and the run as a whole."""
        wanted, run = self.evaluation, (self.method, state, self.task, self.profile, self.engine)
        each = wanted.of_clients(state.round)
        rows, ending = evaluation_rows(*run, clients=last or each, ahead=ahead)
        if each:  # a run of more rounds would tell them here, too
            rows, ending = rows + ending, []
        curve = self._so_far(ACCURACY, rows)
        if wanted.smooth is not None:
            rows.append(smoothed_row(curve, wanted.smooth))
        if last and wanted.adapted:
            ending += adapted_rows(*run)
        if last:
            # Methods that ask more clients get more work for a round.
            mean = fmean(row.value for row in self.seen["cohort"])
            ending.append(Row(state.round, "run", "", "", PER_ROUND, mean))
            ending.append(Row(state.round, "run", "", "", "diverged", float(self._diverged(rows))))
            ending += run_rows(curve, wanted.last, wanted.best, wanted.blocks, wanted.target)
        return (rows, ending) if state.round % wanted.every == 0 else ([], rows + ending)

    def _so_far(self, key: str, rows: Sequence[Row]) -> list[Row]:
        """A number at every evaluation, of which the last is among these rows."""
        last = [row for row in rows if row.overall and row.key == key]
        return [*(row for row in self.seen[key] if row.round < last[0].round), *last]

    def _diverged(self, rows: Sequence[Row]) -> bool:
        rounds = zip(self.seen["train_loss"], self.seen["rejected"], strict=True)
        told = [(loss.value, rejected.value) for loss, rejected in rounds]
        training = [math.inf if math.isnan(loss) else loss for loss, wrong in told if wrong or loss == loss]
        now, classes = final_metrics(rows), self.task.federation.num_classes
        accuracy, majority = now[ACCURACY], now.get("global.majority", 1 / classes)
        constant = not surpasses(accuracy, majority, now["global.samples"])
        evaluated = [row.value for row in self._so_far("global.loss", rows)]
        return diverged(training, evaluated, constant, classes)


def final_metrics(rows: Iterable[Row]) -> dict[str, float]:
    """The last value of each number about the whole federation, keyed like ``global.accuracy``."""
    return {row.key: row.value for row in rows if row.overall}
