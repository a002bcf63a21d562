"""How good is the federation now? Every number names its scope.

``global``
    all test samples pooled, each answered by the model that serves its client. With one model this is its
    accuracy on the common test set; with groups it profits from knowing whose sample it is.
``personal``
    each client's own test samples, answered by the model that serves it; the plain mean over clients.
``adapted``
    the same after one more local budget at every client: each local model as it would be sent, before any
    aggregation. It costs a training round of everybody.
``everybody``
    all test samples pooled, answered by one client's model after the other; the plain mean over clients. A
    model that knows only its own clients' classes is found out here.
``validation.global``, ``validation.personal``
    the same on validation samples, where these choose the round and rank methods.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.core import batchnorm, uploads
from fedcohort.core.adapting import adapted, as_used, others, trained
from fedcohort.core.engine import Ahead, Engine, Order, Samples, Scores, Served
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Clients, Recall, Round
from fedcohort.core.roles.optional import Asks, Serves, Tells, TellsIID
from fedcohort.core.round.exchange import ask
from fedcohort.core.round.loop import Report
from fedcohort.core.round.merge import present
from fedcohort.core.round.messages import messages
from fedcohort.core.round.questions import answered
from fedcohort.core.state import Group, State
from fedcohort.core.tally import Ints
from fedcohort.core.task import Task
from fedcohort.stats import metrics
from fedcohort.stats.clustering import some_rows

COMPARED = 5000  # clients whose label mixes are compared, each with each
READABLE = 20  # classes whose every confusion is worth a look
ANSWERS = "answers"  # the scope of these
SCOPES = ("global", "personal", "adapted", "everybody")  # that name the same numbers
VALIDATION = "validation."  # before scopes and numbers of validation samples


class Row(NamedTuple):
    """One line of the results table; ``client`` and ``group`` are empty where a number is about all of
    them."""

    round: int  # rounds completed
    scope: str
    client: str
    group: str
    metric: str
    value: float

    @property
    def overall(self) -> bool:
        """Whether it is about all clients, not one of them or a group."""
        return not self.client and not self.group

    @property
    def key(self) -> str:
        """``global.accuracy``; the bare metric where there is only one scope it could have."""
        before, _, scope = self.scope.rpartition(".")
        named = f"{scope}.{self.metric}" if scope in SCOPES else self.metric
        return f"{before}.{named}" if before else named


def settle(method: Method, state: State, profile: Profile, engine: Engine) -> State:
    """The state in which every client that chooses its model for itself has chosen."""
    if not isinstance(method.grouping, Asks):
        return state
    everybody = profile.eligible
    now = Round(state.round, profile, 0, everybody, 0, everybody)
    return answered(ask(method, state, now, "serving"), engine)[0]


def presented(
    method: Method, state: State, task: Task, profile: Profile, engine: Engine
) -> tuple[State, Task, Profile, Engine]:
    """All of them as they are when models are looked at: merged, and every client served."""
    task, engine = present(method, state, task, engine)
    profile = replace(profile, model=task.model, local=task.local, began=task.began)
    return settle(method, state, profile, engine), task, profile, engine


def serving(method: Method, state: State) -> list[Served]:
    """Each model with the clients it serves."""
    group = state.grouping["group"]
    own = sorted(state.clients) if method.objective.personal else []
    models = [(state.clients[client], torch.tensor([client])) for client in own]
    shared = torch.ones(len(group), dtype=torch.bool)
    shared[own] = False
    for number, part in enumerate(state.groups):
        members = ((group == number) & shared).nonzero().flatten()
        if len(members):
            served = served_by(method, part)
            models.append((part.weights._replace(params=served)._asdict(), members))
    return models


def in_use(method: Method, state: State, task: Task, engine: Engine) -> tuple[list[Served], Recall | None]:
    """Each model as clients use it after ``state``; where these find BatchNorm statistics of their own."""
    state, task, profile, engine = presented(method, state, task, task.profile(method), engine)
    return adapted(method, state, task, profile, engine, serving(method, state))


def served_by(method: Method, group: Group) -> Tensor:
    """The parameters of the model that answers for a group."""
    optimiser, params = method.server_optimiser, group.weights.params
    return optimiser.serve(params, group.known("optimiser")) if isinstance(optimiser, Serves) else params


def adapt(
    method: Method, state: State, task: Task, profile: Profile, engine: Engine
) -> tuple[list[Served], Clients]:
    """Every client's model after one more local budget, as its transforms would send it, and what it then
    remembers; who has nothing to train on keeps the one it has."""
    blank = uploads.blank(method, profile)
    clients, budget = profile.eligible.tolist(), task.local_at(state.round)
    orders = []
    for client, down in zip(clients, messages(method, state, clients, profile), strict=True):
        part = state.groups[int(state.grouping["group"][client])]
        served = served_by(method, part)
        down = down if served is part.weights.params else {**down, "params": served}
        known = state.clients.get(client, blank)
        orders.append(Order(client, down, known, budget, transforms=method.transforms))
    answers = engine.train(method.objective, orders, state.round)
    mine = {answer.client: answer.mine for answer in answers if not answer.refused}
    if method.objective.personal:
        own = [(memory, torch.tensor([client])) for client, memory in mine.items()]
    else:
        own = trained(orders, answers)
    return [*own, *others(serving(method, state), own)], mine


def scope_rows(number: int, scope: str, scores: Scores, classes: tuple[str, ...]) -> list[Row]:
    """The summary of one scope; what needs the labels of test samples is left out if they are not told."""
    pooled = scope.endswith("global")
    values = _of_samples(scores) if pooled else _of_clients(scores)
    if scores.tally is not None:
        by_class = scores.tally.by_class(len(scores.size), len(classes))
        values |= _classes(*by_class, scores.tally.odds, classes) if pooled else _own_classes(*by_class)
    return [Row(number, scope, "", "", metric, value) for metric, value in values.items()]


def _of_samples(scores: Scores) -> dict[str, float]:
    return {
        "accuracy": metrics.global_accuracy(scores.accuracy, scores.size),
        "loss": float(scores.loss.sum() / max(1, scores.size.sum())),
        "samples": float(scores.size.sum()),
    }


def _of_clients(scores: Scores) -> dict[str, float]:
    tested = scores.size > 0
    accuracy = scores.accuracy[tested]
    return {
        "accuracy": _mean(accuracy),
        "worst_accuracy": float(accuracy.min()) if tested.any() else float("nan"),
        "loss": _mean(scores.loss[tested] / scores.size[tested]),
    }


def _classes(size: Ints, right: Ints, named: Ints, odds: Ints, names: tuple[str, ...]) -> dict[str, float]:
    """Of all samples together; of a class, ``accuracy`` is its recall, ``named`` its share of the answers."""
    size, right, named = (table.sum(0) for table in (size, right, named))
    values = {
        "majority": float(metrics.majority(size)),
        "balanced_accuracy": float(metrics.balanced_accuracy(right, size)),
        "macro_f1": float(metrics.macro_f1(right, size, named)),
    }
    if len(odds):
        values |= zip(("auroc", "average_precision"), metrics.ranking_scores(odds), strict=True)
    recall = np.divide(right, size, out=np.full(len(size), np.nan), where=size > 0)
    for metric, shares in (("accuracy", recall), ("named", named / max(1, named.sum()))):
        values |= {f"{metric}[{name}]": float(share) for name, share in zip(names, shares, strict=True)}
    return values


def _own_classes(size: Ints, right: Ints, named: Ints) -> dict[str, float]:
    """Of each client's samples, the mean over clients."""
    balanced, every = metrics.balanced_accuracy(right, size), size.sum(1)
    return {
        "majority": _mean(metrics.majority(size)[every > 0]),
        "balanced_accuracy": _mean(balanced[every > 0]),
        "balanced_accuracy_by_size": metrics.global_accuracy(balanced, every),
        "macro_f1": _mean(metrics.macro_f1(right, size, named)[every > 0]),
    }


def answer_rows(number: int, scores: Scores, group: Tensor, classes: int) -> list[Row]:
    """How many test samples of each class a group's model gave each answer, both by their places in the list
    of classes, as long as these are few enough to look at; what never happened has no line."""
    if scores.tally is None or classes > READABLE:
        return []
    tables = scores.tally.confusion(group.numpy(), int(group.max()) + 1, classes)
    found = zip(*(place.tolist() for place in tables.nonzero()), tables[tables > 0].tolist(), strict=True)
    return [
        Row(number, ANSWERS, "", str(one), f"answers[{label}][{said}]", float(samples))
        for one, label, said, samples in found
    ]


def fairness_rows(number: int, accuracy: np.ndarray, scope: str = "fairness") -> list[Row]:
    values = {"ad": metrics.accuracy_deviation(accuracy), "sdad": metrics.accuracy_deviation_sd(accuracy)}
    return [Row(number, scope, "", "", metric, value) for metric, value in values.items()]


def client_rows(
    number: int,
    scores: Scores,
    clients: tuple[str, ...],
    group: Tensor,
    told: Mapping[str, Tensor],
    scope: str = "personal",
) -> list[Row]:
    """Each client's accuracy and test size under the model that answers for it, and what its grouping
    tells."""
    rows = []
    for client, (accuracy, size) in enumerate(zip(scores.accuracy, scores.size, strict=True)):
        where = (number, scope, clients[client], str(int(group[client])))
        rows += [Row(*where, "accuracy", float(accuracy)), Row(*where, "test_size", float(size))]
        where = (number, "grouping", *where[2:])
        rows += [Row(*where, metric, float(values[client])) for metric, values in told.items()]
    return rows


def group_rows(number: int, state: State, task: Task, told: Tensor | None, models: int) -> list[Row]:
    """How many models serve somebody; how well groups, if several, fit the labels that clients told and the
    known truth."""
    federation, group = task.federation, state.grouping["group"].numpy()
    used = np.unique(group)
    values: dict[str, float] = {"groups": float(models)}
    if len(used) > 1 and told is not None:
        counts = told.numpy()
        held = np.flatnonzero(counts.sum(1))
        held = held[some_rows(len(held), COMPARED, 0, "was")]
        p = counts[held] / counts[held].sum(1, keepdims=True)
        values |= {"was": metrics.was(p, group[held]), "wadb": metrics.wadb(p, group[held])}
    if federation.truth is not None:
        truth = federation.truth.numpy()
        values |= {"rand": metrics.rand(group, truth), "adjusted_rand": metrics.adjusted_rand(group, truth)}
    return [Row(number, "grouping", "", "", metric, value) for metric, value in values.items()]


def iid_rows(method: Method, state: State, task: Task) -> list[Row]:
    """How well averaging tells IID clients from the others, where it says and the partition knows."""
    averaging, truth = method.averaging, task.federation.iid
    if not isinstance(averaging, TellsIID) or truth is None:
        return []
    found = averaging.iid(state.groups[0].known("averaging"))
    if found is None:
        return []
    scores = metrics.binary_scores(found.numpy(), truth.numpy())
    return [Row(state.round, "grouping", "", "", f"iid_{name}", value) for name, value in scores.items()]


def round_rows(method: Method, report: Report, state: State, task: Task, profile: Profile) -> list[Row]:
    """What a round did: who trained, on which labels as far as they were told, at what cost so far."""
    number = state.round
    names = task.federation.clients
    values = {
        "cohort": float(len(report.selected)),
        "lost": float(len(report.lost)),
        "rejected": float(len(report.rejected)),
        "train_loss": report.loss,
        "bytes_up": float(state.bytes_up),
        "bytes_down": float(state.bytes_down),
    }
    if profile.counts is not None:
        wanted = report.selected[~torch.isin(report.selected, report.declined)]
        if len(wanted):
            values["cohort_entropy"] = metrics.cohort_entropy(profile.counts[wanted].numpy())
    if len(report.declined):
        values["declined"] = float(len(report.declined))
    group = state.grouping["group"]
    answered = set(report.answered.tolist())
    trained = [
        Row(number, "cohort", names[c], str(int(group[c])), "trained", float(c in answered))
        for c in report.selected.tolist()
    ]
    of_groups = [
        Row(number, "grouping", "", str(one), metric, value)
        for metric, values in _tells(method).of_groups(state.grouping).items()
        for one, value in enumerate(values.tolist())
    ]
    told = [Row(number, "round", "", "", metric, value) for metric, value in values.items()]
    return [*told, *of_groups, *trained]


def evaluation_rows(
    method: Method,
    state: State,
    task: Task,
    profile: Profile,
    engine: Engine,
    clients: bool,
    ahead: Ahead | None = None,
    on: Samples = "test",
) -> tuple[list[Row], list[Row]]:
    """The global and personal scopes, fairness and groups; with ``clients``, also a line for every client and
    what the server found out about each."""
    state, task, profile, engine = presented(method, state, task, profile, engine)
    models = serving(method, state)
    used, kept = adapted(method, state, task, profile, engine, models)
    scores = _revealed(engine.score(used, ahead, kept, on), method, task)
    names, before = task.federation.classes, VALIDATION if on == "validation" else ""
    rows = scope_rows(state.round, f"{before}global", scores, names)
    rows += scope_rows(state.round, f"{before}personal", scores, names)
    rows += fairness_rows(state.round, scores.accuracy, f"{before}fairness")
    count = len(profile.eligible) if method.adapts else len(models)
    rows += group_rows(state.round, state, task, profile.counts, count)
    if not clients:
        return rows, []
    group, told = state.grouping["group"], _tells(method).of_clients(state.grouping)
    each = client_rows(state.round, scores, task.federation.clients, group, told, f"{before}personal")
    if on == "validation":
        return rows, each
    return rows, [*iid_rows(method, state, task), *each, *answer_rows(state.round, scores, group, len(names))]


def adapted_rows(method: Method, state: State, task: Task, profile: Profile, engine: Engine) -> list[Row]:
    state, task, profile, engine = presented(method, state, task, profile, engine)
    models, mine = adapt(method, state, task, profile, engine)
    scores = _revealed(engine.score(models, kept=batchnorm.kept(task, mine, state.clients)), method, task)
    rows = scope_rows(state.round, "adapted", scores, task.federation.classes)
    rows += fairness_rows(state.round, scores.accuracy, "adapted")
    return rows + client_rows(
        state.round, scores, task.federation.clients, state.grouping["group"], {}, "adapted"
    )


def everybody_rows(method: Method, state: State, task: Task, profile: Profile, engine: Engine) -> list[Row]:
    """How much of the federation each client's model knows: it costs an evaluation for every model."""
    state, task, profile, engine = presented(method, state, task, profile, engine)
    used = as_used(*adapted(method, state, task, profile, engine, serving(method, state)))
    everybody = torch.arange(task.federation.num_clients)
    values = {"accuracy": 0.0, "loss": 0.0}
    for weights, members in used:
        found = _of_samples(engine.score([(weights._asdict(), everybody)]))
        values = {
            metric: value + found[metric] * len(members) / len(everybody) for metric, value in values.items()
        }
    return [Row(state.round, "everybody", "", "", metric, value) for metric, value in values.items()]


def _revealed(scores: Scores, method: Method, task: Task) -> Scores:
    """Of clients that do not tell their labels exactly, no number of a class: any would undo the noise."""
    exact = method.privacy(task.privacy).counts == "exact"
    return scores if exact else scores._replace(tally=None)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _tells(method: Method) -> Tells:
    return method.grouping if isinstance(method.grouping, Tells) else Tells()
