"""The model that serves a client, a group or everybody, out of a run directory and nothing else."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from fedcohort.core import batchnorm
from fedcohort.core.disclosure import Disclosed
from fedcohort.core.evaluate import served_by, serving
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.data.own_table import own_table
from fedcohort.data.preparation import Preparation
from fedcohort.data.revealed import Revealed
from fedcohort.data.scaling import Scale
from fedcohort.models.flat import Weights
from fedcohort.runs.comparison import PlannedRun, refuse_misfit, reopen
from fedcohort.runs.own_models import read_model
from fedcohort.runs.recorder import read_state
from fedcohort.runs.run import chosen_state
from fedcohort.runs.stored import AGAIN, PREPARATION, TABLE, FinishedRun, read_result
from fedcohort.serving.architecture import Architecture
from fedcohort.serving.model import ServedModel
from fedcohort.serving.rows import read_rows
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError
from fedcohort.util.files import damaged
from fedcohort.util.settings import nearest
from fedcohort.util.user_code import resume_command

BEFORE = "before its clients train it further"


@dataclass(frozen=True)
class Whose:
    """Who a model is for; neither: everybody."""

    client: str | None = None
    group: int | None = None


@dataclass(frozen=True)
class Served:
    """A model and the clients, by number, that it serves in its run."""

    model: ServedModel
    clients: tuple[int, ...]
    untouched: bool = False  # these train it further before they use it


def served_model(run: FinishedRun, whose: Whose, rows: Path | None = None, trust: bool = False) -> Served:
    """``rows`` are of who will use the model, where the run does not say how to read or scale them; code that
    the directory names runs only on ``trust``."""
    (job,) = reopen(run.directory, trust).jobs
    roster = run.revealed()
    task = _task(job, roster)
    state = _state(run, job, task)
    weights, clients = _weights(run, whose, state, job, task)
    preparation, given = _preparation(run, job, roster, rows)
    own = None if given is None else preparation.own_scale(given)
    scaling = None if roster.vocabulary else roster.scale or own or Scale.plain(roster.shape[0])
    settings = {key: value for key, value in job.experiment.model.items() if key != "name"}
    plain = Architecture(job.experiment.model["name"], settings, roster.shape, roster.vocabulary)
    architecture, network = plain.holding(task.model, weights, state.encoders, roster.num_classes)
    untouched = job.method.adapts and whose.client is None
    words = _in_words(whose, roster, clients) + (f", {BEFORE}" if untouched else "")
    model = ServedModel(network, architecture, roster.classes, preparation, scaling, words)
    return Served(model.eval(), clients, untouched)


def _task(job: PlannedRun, roster: Revealed) -> Task:
    """As evaluation has it; where all data are in one place, so are BatchNorm's statistics."""
    experiment = job.experiment
    local = replace(experiment.local, augment=None)
    if job.method.pooled and local.bn == "local":
        local = replace(local, bn="average")
    told = Disclosed(roster.counts, dict(roster.summaries))
    network = experiment.network(roster)
    return Task(roster, network, local, experiment.cohort, experiment.privacy, seed=job.seed, disclosed=told)


def _state(run: FinishedRun, job: PlannedRun, task: Task) -> State:
    """The one that was chosen, or the last, with the group that every client was served by when it was
    evaluated."""
    if not checkpoint.exists(run.directory):
        raise UserError(f"{run.directory} holds no model: restore its {checkpoint.CURRENT}")
    tensors, _ = checkpoint.load(run.directory)
    state = read_state(run.directory, tensors, job.method, (lambda _: {}) if run.about.elsewhere else None)
    refuse_misfit(state, job, task, job.experiment.rounds)
    try:
        state = chosen_state(state, read_result(run.directory) or {})
    except ValueError as error:
        raise damaged(run.directory / checkpoint.CURRENT, error, AGAIN) from None
    group = torch.tensor(list(run.group.values()), dtype=torch.int64)
    if tuple(run.group) != task.federation.clients or int(group.max()) >= len(state.groups):
        raise damaged(run.directory / TABLE, "its clients are not those of the run")
    return replace(state, grouping={**state.grouping, "group": group})


def _weights(
    run: FinishedRun, whose: Whose, state: State, job: PlannedRun, task: Task
) -> tuple[Weights, tuple[int, ...]]:
    """The model by the rule of evaluation, and whom it serves."""
    models, kept = serving(job.method, state), batchnorm.kept(task, state.clients)
    own = job.method.adapts and whose.client is not None
    at_clients = own or job.method.objective.personal or kept is not None
    if run.about.elsewhere and at_clients:
        raise UserError(
            f"the clients of {run.directory} keep models of their own: each exports its own, where it ran "
            "'fedcohort flower client', with 'fedcohort export HOME'"
        )
    if whose.client is not None:
        place = _place(whose.client, task.federation.clients)
        model = next(model for model, members in models if place in members)
        weights = Weights(model["params"], model["buffers"])
        if own:
            return read_model(run.directory, place, len(task.federation.clients), weights), (place,)
        return batchnorm.worn(weights, None if kept is None else kept(place)), (place,)
    alone = job.method.silent or kept is not None
    if whose.group is None and (len(models) > 1 or alone or job.method.adapts):
        last = len(state.groups) - 1
        groups = "" if alone else f", --group 0{f' to {last}' if last else ''} or --newcomer COUNTS"
        groups += f" (a group's, {BEFORE})" if groups and job.method.adapts else ""
        raise UserError(
            f"the clients of {run.directory} are served by several models: choose one with --client{groups}"
        )
    if alone:
        raise UserError(f"the clients of {run.directory} have models of their own: choose one with --client")
    number = int(state.grouping["group"][0]) if whose.group is None else whose.group
    if not 0 <= number < len(state.groups):
        raise UserError(f"{run.directory} has no group {number}: its groups are 0 to {len(state.groups) - 1}")
    group = state.groups[number]
    weights = group.weights._replace(params=served_by(job.method, group))
    return weights, tuple((state.grouping["group"] == number).nonzero().flatten().tolist())


def _place(client: str, clients: tuple[str, ...]) -> int:
    if client not in clients:
        raise UserError(f"the run has no client '{client}'{nearest(client, clients)}")
    return clients.index(client)


def _preparation(
    run: FinishedRun, job: PlannedRun, roster: Revealed, rows: Path | None
) -> tuple[Preparation, torch.Tensor | None]:
    """How rows are read, and the examples in ``rows`` if the scale is theirs."""
    path = run.directory / PREPARATION
    kept = path.exists()
    if not kept and not run.about.elsewhere:
        resume = resume_command(run.directory, run.settings.table)
        raise UserError(f"{run.directory} does not say how its rows are read: '{resume}' adds it")
    if kept:
        preparation = Preparation.read(path)
    elif rows is not None and job.experiment.data["source"] == "table":
        preparation = _learnt(job.experiment.data, rows, roster)
    else:
        preparation = Preparation(scale="none" if roster.scale is None else "federated")
    if not preparation.fits(roster.shape, roster.vocabulary):
        what = path if kept else rows
        raise UserError(f"{what} does not make examples of shape {roster.shape}, which the model reads")
    if preparation.own and rows is None:
        raise UserError(
            f"each client of {run.directory} scaled or filled its numbers by its own rows, which no run "
            "directory keeps: give rows of who will use the model with --rows"
        )
    if rows is not None and kept and not preparation.own:
        raise UserError(f"{run.directory} says itself how its rows are read and scaled: leave --rows out")
    if rows is None or not preparation.own:
        return preparation, None
    return preparation, preparation.encode(read_rows(rows, preparation))


def _learnt(data: dict[str, Any], rows: Path, roster: Revealed) -> Preparation:
    """As a client of a deployment reads its table: the server never sees one."""
    table, frame = own_table(data, rows)
    preparation = table.learn(frame)
    if data.get("scale") == "none" or not bool(preparation.numbers.any()):
        return preparation
    return replace(preparation, scale="client" if roster.scale is None else "federated")


def _in_words(whose: Whose, roster: Revealed, clients: tuple[int, ...]) -> str:
    if whose.client is not None:
        return f"client {whose.client}"
    if len(clients) == roster.num_clients:
        return "the only client" if len(clients) == 1 else f"all {len(clients)} clients"
    return f"group {whose.group} ({len(clients)} of {roster.num_clients} clients)"
