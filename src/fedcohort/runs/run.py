"""One run: a method on a task for a number of rounds, with results as they come."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fedcohort.core.adapting import as_used
from fedcohort.core.engine import Ahead, Engine
from fedcohort.core.evaluate import Row, adapted_rows, evaluation_rows, in_use, round_rows
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.round.loop import Report, start, step
from fedcohort.core.round.merge import too_short
from fedcohort.core.round.preparation import orders_ahead
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation
from fedcohort.engines.choice import Means
from fedcohort.models.flat import Weights
from fedcohort.presets import read_method
from fedcohort.runs.over_rounds import ACCURACY, run_rows, smoothed_row
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least, between

PER_ROUND = "clients_per_round"


@dataclass(frozen=True)
class Evaluation:
    """What is measured, and when. The last round always is."""

    every: Annotated[int, at_least(1)] = 1  # rounds between evaluations
    clients_every: Annotated[int, at_least(1)] | None = (
        None  # rounds between those of every client's accuracy
    )
    adapted: bool = False  # also measure after one more local budget, at the end
    target: Annotated[float, between(0, 1)] | None = None  # global accuracy whose first round is reported
    last: Annotated[int, at_least(1)] | None = None  # mean global accuracy of this many last rounds
    best: bool = False  # the highest global accuracy of any evaluated round
    blocks: Annotated[int, at_least(1)] | None = None  # mean global accuracy of every so many rounds
    smooth: Annotated[float, between(0, 1)] | None = None  # weight of a round in the next: a moving average

    def __post_init__(self) -> None:
        if self.clients_every and self.clients_every % self.every:
            raise UserError(
                f"evaluate.clients_every: {self.clients_every} is no multiple of evaluate.every, "
                f"{self.every}, and other rounds are not evaluated: write {self.every}, or a multiple"
            )

    def of_clients(self, number: int) -> bool:
        """Whether every client's accuracy is kept in this round, be it the last or not."""
        return self.clients_every is not None and number % self.clients_every == 0


class Callback:
    """Told of a run, round by round. It does nothing; others override what they want to know."""

    def after_round(self, state: State, report: Report, rows: Sequence[Row]) -> bool:
        """A true answer ends the run early."""
        return False

    def conclude(self, state: State, rows: Sequence[Row]) -> None:
        """After the last of all rounds: what a run of more rounds would not have told at this one."""

    def keep(self, models: Sequence[Weights]) -> None:
        """Then, where clients make models of their own of those that serve them: each client's."""

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
            if method.adapts and isinstance(task.federation, Federation):
                models = _own_models(method, state, task, workers)
                for callback in callbacks:
                    callback.keep(models)
    finally:
        for callback in callbacks:
            callback.close(state)
    return Result(method, state, table, final_metrics(table))


def _own_models(method: Method, state: State, task: Task, engine: Engine) -> list[Weights]:
    """Of each client."""
    used = as_used(*in_use(method, state, task, engine))
    models = {client: weights for weights, members in used for client in members.tolist()}
    return [models[client] for client in range(task.federation.num_clients)]


class _Measures:
    """What is measured of a run: at evaluated rounds, and at its end."""

    def __init__(
        self, evaluation: Evaluation, method: Method, task: Task, profile: Profile, engine: Engine
    ) -> None:
        self.evaluation, self.method, self.task = evaluation, method, task
        self.profile, self.engine = profile, engine
        self.curve: list[Row] = []  # global accuracy
        self.asked: list[float] = []  # clients, in each round

    def see(self, rows: Iterable[Row]) -> None:
        """Keeps what the end of the run sums up."""
        for row in rows:
            if row.key == ACCURACY:
                self.curve.append(row)
            elif row.key == "cohort":
                self.asked.append(row.value)

    def take(self, state: State, last: bool, ahead: Ahead | None = None) -> tuple[list[Row], list[Row]]:
        """How the models do after a round, and what is told only because it is the last: a line for every
        client, and the run as a whole."""
        wanted, run = self.evaluation, (self.method, state, self.task, self.profile, self.engine)
        each = wanted.of_clients(state.round)
        rows, ending = evaluation_rows(*run, clients=last or each, ahead=ahead)
        if each:  # a run of more rounds would tell them here, too
            rows, ending = rows + ending, []
        curve = [row for row in self.curve if row.round < state.round]
        curve += [row for row in rows if row.key == ACCURACY]
        if wanted.smooth is not None:
            rows.append(smoothed_row(curve, wanted.smooth))
        if last and wanted.adapted:
            ending += adapted_rows(*run)
        if last:
            # Methods that ask more clients get more work for a round.
            mean = sum(self.asked) / len(self.asked)
            ending.append(Row(state.round, "run", "", "", PER_ROUND, mean))
            ending += run_rows(curve, wanted.last, wanted.best, wanted.blocks, wanted.target)
        return (rows, ending) if state.round % wanted.every == 0 else ([], rows + ending)


def final_metrics(rows: Iterable[Row]) -> dict[str, float]:
    """The last value of each number about the whole federation, keyed like ``global.accuracy``."""
    return {row.key: row.value for row in rows if row.overall}
