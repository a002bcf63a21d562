"""What passes between the server and its clients in a round: questions and answers, orders and updates."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core import batchnorm, client_store, uploads
from fedcohort.core.deltas import Rows, is_finite
from fedcohort.core.engine import Answer, Engine, ModelTrial, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Phase, Round, Updates
from fedcohort.core.roles import PROBES
from fedcohort.core.roles.optional import Asks
from fedcohort.core.round.groups import inherit
from fedcohort.core.round.messages import messages
from fedcohort.core.round.questions import Asking
from fedcohort.core.schema import bytes_of, survey_fields
from fedcohort.core.state import State
from fedcohort.core.task import Task


class Surveyed(NamedTuple):
    """Who got every group's model, and the bytes of what they said and of memories that it made count."""

    ids: Ids
    bytes: int


def ask(
    method: Method, state: State, now: Round, phase: Phase, lost: Collection[int] = ()
) -> Asking[tuple[State, Surveyed]]:
    """The state with the groups that clients' answers make; ``lost`` clients give none."""
    grouping = method.grouping
    if not isinstance(grouping, Asks):
        return state, Surveyed(now.members[:0], 0)
    surveyed = grouping.asks(state.grouping, now, phase)
    there = torch.tensor([client for client in surveyed.tolist() if client not in lost], dtype=torch.long)
    if not len(there):
        return state, Surveyed(surveyed, 0)
    models = [group.weights for group in state.groups]
    trial = ModelTrial(models, there, batchnorm.kept(now.profile, state.clients))
    there, answers = yield lambda engine: engine.survey(trial, grouping.answer)
    if not len(there):
        return state, Surveyed(surveyed, 0)
    heard = grouping.hear(state.grouping, there, answers)
    groups, told = inherit(method, now.profile, state.groups, state.grouping, heard, state.clients)
    told += len(there) * bytes_of(survey_fields(grouping.answer, len(models)))
    return replace(state, groups=groups, grouping=heard), Surveyed(surveyed, told)


def train(
    method: Method, state: State, profile: Profile, engine: Engine, orders: Sequence[Order]
) -> tuple[list[Answer], Updates]:
    """All answers, and the usable ones as updates; of those that will be judged perhaps without what goes
    up."""
    answers = engine.train(method.objective, orders, state.round)
    return answers, _stack(answers, state, profile)


def collect(
    state: State, profile: Profile, engine: Engine, answers: Sequence[Answer], wanted: Updates
) -> tuple[list[Answer], Updates]:
    """The same after judgement: what goes up is fetched from those whose update is wanted."""
    there = set(wanted.ids.tolist())
    fetched = engine.collect([answer for answer in answers if answer.client in there], state.round)
    known = {answer.client: answer for answer in fetched}
    told = [known.get(answer.client, answer) for answer in answers]
    return told, _stack(fetched, state, profile)


def lost(task: Task, selected: Ids, number: int) -> set[int]:
    """Clients whose answer will not count; may name clients that were not selected."""
    failing = set(task.faults.lost(selected, task.seed, number).tolist())
    return failing | task.slow if task.faults.straggler_result == "drop" else failing


def orders_for(
    method: Method,
    state: State,
    task: Task,
    profile: Profile,
    clients: list[int],
    quotas: dict[int, Tensor],
    judged: bool = False,
) -> list[Order]:
    """What each of these clients is to do in the round after ``state``."""
    blank = uploads.blank(method, profile)
    probes, transforms = method.uses & frozenset(PROBES), method.transforms
    kept = client_store.versions(state.best.clients) if state.best is not None else {}
    orders = []
    for client, down in zip(clients, messages(method, state, clients, profile), strict=True):
        mine, budget = state.clients.get(client, blank), task.budget(client, state.round)
        quota, spare = quotas.get(client), kept.get(client)
        orders.append(Order(client, down, mine, budget, probes, quota, judged, transforms, spare))
    return orders


def _is_finite(answer: Answer) -> bool:
    values = (*answer.up.values(), *answer.mine.values(), *answer.probes.values(), answer.buffers)
    return all(is_finite(value) for value in values)


def _stack(told: Sequence[Answer], state: State, profile: Profile) -> Updates:
    """The usable answers, in ascending order of client."""
    usable = (a for a in told if a.steps and not a.refused and _is_finite(a))
    answers = sorted(usable, key=lambda answer: answer.client)
    ids = torch.tensor([a.client for a in answers], dtype=torch.long)
    longest = max((a.steps for a in answers), default=0)
    trace = torch.full((len(answers), longest), torch.nan)
    for row, answer in enumerate(answers):
        trace[row, : answer.steps] = answer.trace
    keys, probed = (answers[0].up, answers[0].probes) if answers else ((), ())
    return Updates(
        ids=ids,
        group=state.grouping["group"][ids],
        size=torch.tensor([a.size for a in answers], dtype=torch.long),
        steps=torch.tensor([a.steps for a in answers], dtype=torch.long),
        reach=torch.tensor([a.reach for a in answers]),
        trace=trace,
        up={key: Rows([a.up[key] for a in answers]) for key in keys},  # type: ignore[misc]  # tensors in all but name
        buffers=torch.stack([a.buffers for a in answers])
        if answers
        else torch.zeros(0, profile.model.num_buffers),
        probes={key: torch.stack([a.probes[key] for a in answers]) for key in probed},
    )
