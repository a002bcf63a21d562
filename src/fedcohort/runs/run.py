"""One run: a method on a task for a number of rounds, with results as they come."""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from fedcohort.core.adapting import as_used
from fedcohort.core.engine import Ahead, Engine
from fedcohort.core.evaluate import (
    VALIDATION,
    Row,
    adapted_rows,
    evaluation_rows,
    everybody_rows,
    in_use,
    round_rows,
)
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
from fedcohort.runs.evaluation import CHOSEN, Evaluation, on_samples
from fedcohort.runs.outcomes.over_rounds import ACCURACY, diverged, run_rows, smoothed_row
from fedcohort.stats.metrics import surpasses

PER_ROUND = "clients_per_round"
SUMMED_UP = "cohort", "cohort_entropy", "train_loss", "rejected"  # at the end of a run, beside what ranks it
CHOOSING = (VALIDATION, "grouping")  # scopes of which the chosen round counts, and not the last
LOSS = "global.loss"


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
    complete: bool = True  # False: it was asked to end early, and can be continued

    @property
    def chosen(self) -> State:
        """The state whose models serve clients: of the round that validation samples chose, or the last."""
        return chosen_state(self.state, self.metrics)


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
    evaluation.check(method, task)
    task = task.for_method(method)
    profile, workers = task.profile(method), (engine or Means().engine_for)(task)
    state, table = resume or (start(method, task, profile, folder), [])
    table = list(table)
    measures = _Measures(evaluation, method, task, profile, workers)
    measures.see(table)
    measures.refuse(state)
    try:
        while state.round < rounds and not measures.stalled:
            sent = workers.messages
            state, report = step(method, state, task, profile, workers)
            rows, last = round_rows(method, report, state, task, profile), state.round == rounds
            measures.see(rows)
            if last or state.round % evaluation.every == 0:
                elsewhere = bool(workers.messages) and not last
                ahead = orders_ahead(method, state, task, profile) if elsewhere else None
                found = measures.look(state, last, ahead)
                measures.see(found)
                rows += found
                if measures.best_round == state.round:
                    state = state.as_best()
            if workers.messages > sent:
                rows.append(Row(state.round, "round", "", "", "messages", float(workers.messages - sent)))
            table += rows
            wishes = [callback.after_round(state, report, rows) for callback in callbacks]
            if any(wishes):
                break
        complete = state.round == rounds or measures.stalled
        if complete:
            ending = measures.ending(state)
            table += ending
            for callback in callbacks:
                callback.conclude(state, ending)
            if method.adapts and isinstance(task.federation, Federation):
                models = _own_models(method, chosen_state(state, final_metrics(ending)), task, workers)
                for callback in callbacks:
                    callback.keep(models)
    finally:
        for callback in callbacks:
            callback.close(state)
    return Result(method, state, table, final_metrics(table), complete)


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
        keys = [*(on_samples(evaluation.on, key) for key in (ACCURACY, LOSS)), evaluation.ranked_by]
        self.seen: dict[str, list[Row]] = {key: [] for key in (*keys, *SUMMED_UP)}
        self.last: tuple[int, list[Row], list[Row]] | None = None  # round and rows of the last look

    def see(self, rows: Iterable[Row]) -> None:
        """Keeps what the end of the run sums up."""
        for row in rows:
            if row.overall and row.key in self.seen:
                self.seen[row.key].append(row)

    @property
    def best_round(self) -> int | None:
        """The best of all that were evaluated, by validation samples; None where these choose nothing."""
        told = self.seen[self.evaluation.ranked_by] if self.evaluation.on == "validation" else []
        return self._best(told) if told else None

    @property
    def stalled(self) -> bool:
        """Whether too many evaluations in a row brought nothing better."""
        patience, told = self.evaluation.patience, self.seen[self.evaluation.ranked_by]
        return patience is not None and sum(row.round > (self.best_round or 0) for row in told) >= patience

    def refuse(self, state: State) -> None:
        """Raises ValueError if a state was restored without the best one so far."""
        if (best := self.best_round) is not None and (state.best is None or state.best.round != best):
            raise ValueError(f"what was best, after round {best}, is missing")

    def look(self, state: State, last: bool, ahead: Ahead | None = None) -> list[Row]:
        """How the models do after a round; nothing if a run of more rounds would not look at this one."""
        wanted, run = self.evaluation, (self.method, state, self.task, self.profile, self.engine)
        each = wanted.of_clients(state.round)
        clients = each or (last and wanted.on == "test")
        rows, of_each = evaluation_rows(*run, clients=clients, ahead=ahead, on=wanted.on)
        if each:
            rows, of_each = rows + of_each, []
        if wanted.smooth is not None:
            rows.append(smoothed_row(self._so_far(ACCURACY, rows), wanted.smooth))
        if wanted.ranked_by not in final_metrics(rows) and wanted.on == "validation":
            raise wanted.untold
        self.last = state.round, rows, of_each
        return rows if self._regular(state) else []

    def ending(self, state: State) -> list[Row]:
        """What is told only because the run ends here: of test samples, if others chose the round; a line for
        every client; and the run as a whole."""
        if self.last is None or self.last[0] != state.round:
            self.look(state, last=True)
        assert self.last is not None  # noqa: S101  # it is now
        _, rows, told = self.last
        wanted, number, chosen = self.evaluation, state.round, state
        if wanted.on == "validation":
            number = self._best(self._so_far(wanted.ranked_by, rows))
            chosen = state.after(number) or state
        run = self.method, chosen, self.task, self.profile, self.engine
        if wanted.on == "validation":
            of_test, of_each = evaluation_rows(*run, clients=True)
            told = [*(row for row in of_test if row.scope != "grouping"), *of_each]
        ending = [*told, *(adapted_rows(*run) if wanted.adapted else [])]
        ending += everybody_rows(*run) if wanted.everybody else []
        # Methods that ask more clients get more work for a round.
        values = {PER_ROUND: fmean(row.value for row in self.seen["cohort"])}
        if entropies := self.seen["cohort_entropy"]:
            values["mean_cohort_entropy"] = fmean(row.value for row in entropies)
        values["diverged"] = float(self._diverged(rows, number))
        if wanted.on == "validation":
            values[CHOSEN] = float(number)
        ending += [Row(state.round, "run", "", "", metric, value) for metric, value in values.items()]
        curve = self._so_far(on_samples(wanted.on, ACCURACY), rows)
        ending += run_rows(curve, wanted.last, wanted.best, wanted.blocks, wanted.target)
        ending = [row._replace(round=state.round) for row in ending]
        return ending if self._regular(state) else [*rows, *ending]

    def _regular(self, state: State) -> bool:
        """Whether this round is evaluated, be it the last or not."""
        return state.round % self.evaluation.every == 0

    def _best(self, told: Sequence[Row]) -> int:
        """The first round in which the number that ranks is best; what is no number never is."""
        sign = -1 if self.evaluation.metric.endswith("loss") else 1
        return max(told, key=lambda row: -math.inf if math.isnan(row.value) else sign * row.value).round

    def _so_far(self, key: str, rows: Sequence[Row]) -> list[Row]:
        """A number at every evaluation, of which the last is among these rows."""
        last = [row for row in rows if row.overall and row.key == key]
        return [*(row for row in self.seen[key] if row.round < last[0].round), *last]

    def _diverged(self, rows: Sequence[Row], number: int) -> bool:
        """Whether training had, after that round."""
        rounds = zip(self.seen["train_loss"], self.seen["rejected"], strict=True)
        told = [(loss.value, wrong.value) for loss, wrong in rounds if loss.round <= number]
        training = [math.inf if math.isnan(loss) else loss for loss, wrong in told if wrong or loss == loss]
        now, classes, on = final_metrics(rows), self.task.federation.num_classes, self.evaluation.on
        accuracy, evaluated = (
            [row.value for row in self._so_far(on_samples(on, key), rows) if row.round <= number]
            for key in (ACCURACY, LOSS)
        )
        majority = now.get(on_samples(on, "global.majority"), 1 / classes)
        constant = not surpasses(accuracy[-1], majority, now[on_samples(on, "global.samples")])
        return diverged(training, evaluated, constant, classes)


def final_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """The last value of each number about the whole federation, keyed like ``global.accuracy``; where
    validation samples chose a round, what they and the groups were then."""
    told = [row for row in rows if row.overall]
    last = {row.key: row.value for row in told}
    if (chosen := last.get(CHOSEN)) is not None:
        last |= {row.key: row.value for row in told if row.round <= chosen and row.scope.startswith(CHOOSING)}
    return last


def chosen_state(state: State, metrics: Mapping[str, float]) -> State:
    """The state whose models serve clients, of the last one of a complete run and its final numbers."""
    number = int(metrics.get(CHOSEN, state.round))
    if (found := state.after(number)) is None:
        raise ValueError(f"what was best, after round {number}, is missing")
    return found
