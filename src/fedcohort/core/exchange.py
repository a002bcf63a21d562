"""What passes between the server and its clients in a round: questions and answers, orders and updates."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.groups import inherit
from fedcohort.core.method import Method
from fedcohort.core.parts import PROBES, Ids, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.rows import Rows, is_finite
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.core.traffic import FLOAT, messages
from fedcohort.engines import Answer, Engine, Order


class Asked(NamedTuple):
    """Who got every group's model, and the bytes of what they said."""

    ids: Ids
    bytes: int


def ask(
    method: Method, state: State, now: Round, engine: Engine, lost: Collection[int] = ()
) -> tuple[State, Asked]:
    """The state with the groups that clients' answers make; ``lost`` clients give none."""
    asked = method.grouping.asks(state.grouping, now)
    there = torch.tensor([client for client in asked.tolist() if client not in lost], dtype=torch.long)
    if not len(there):
        return state, Asked(asked, 0)
    answers = engine.survey([group.weights for group in state.groups], there, method.grouping.answer)
    grouping = method.grouping.hear(state.grouping, there, answers)
    groups = inherit(method, now.profile, state.groups, state.grouping, grouping, state.clients)
    return replace(state, groups=groups, grouping=grouping), Asked(asked, FLOAT * answers.numel())


def train(
    method: Method,
    state: State,
    task: Task,
    profile: Profile,
    engine: Engine,
    selected: Ids,
    quotas: dict[int, Tensor],
) -> tuple[list[Answer], Updates]:
    """All answers, and the usable ones as updates."""
    missing = lost(task, selected, state.round)
    asked = [c for c in selected.tolist() if c not in missing]
    orders = _orders(method, state, task, profile, asked, quotas)
    answers = engine.train(method.objective, orders, state.round)
    usable = sorted((a for a in answers if a.steps and _is_finite(a)), key=lambda answer: answer.client)
    size = profile.size.clone()
    for order in orders:
        if order.quota is not None:
            size[order.client] = order.quota.sum()
    return answers, _stack(usable, state, profile, size)


def lost(task: Task, selected: Ids, number: int) -> set[int]:
    """Clients whose answer will not count; may name clients that were not selected."""
    failing = set(task.faults.lost(selected, task.seed, number).tolist())
    return failing | task.slow if task.faults.straggler_result == "drop" else failing


def _orders(
    method: Method,
    state: State,
    task: Task,
    profile: Profile,
    clients: list[int],
    quotas: dict[int, Tensor],
) -> list[Order]:
    blank = method.objective.init_client(profile)
    lr = task.local.lr_at(state.round)
    probes = method.uses & frozenset(PROBES)
    orders = []
    for client, down in zip(clients, messages(method, state, clients), strict=True):
        order = Order(client, down, state.clients.get(client, blank), lr, 0, probes)
        if client in quotas:  # the client knows how many it really has
            quota = quotas[client].long().minimum(task.federation.counts[client])
            steps = task.steps_for(client, state.round, int(quota.sum()))
            orders += [order._replace(steps=steps, quota=quota)] if quota.any() else []
        else:
            orders.append(order._replace(steps=task.steps_for(client, state.round)))
    return orders


def _is_finite(answer: Answer) -> bool:
    values = (*answer.up.values(), *answer.mine.values(), *answer.probes.values(), answer.buffers)
    return all(is_finite(value) for value in values)


def _stack(answers: Sequence[Answer], state: State, profile: Profile, size: Tensor) -> Updates:
    ids = torch.tensor([a.client for a in answers], dtype=torch.long)
    longest = max((a.steps for a in answers), default=0)
    trace = torch.full((len(answers), longest), torch.nan)
    for row, answer in enumerate(answers):
        trace[row, : answer.steps] = answer.trace
    keys, probed = (answers[0].up, answers[0].probes) if answers else ((), ())
    return Updates(
        ids=ids,
        group=state.grouping["group"][ids],
        size=size[ids],
        steps=torch.tensor([a.steps for a in answers], dtype=torch.long),
        reach=torch.tensor([a.reach for a in answers]),
        trace=trace,
        up={key: Rows([a.up[key] for a in answers]) for key in keys},  # type: ignore[misc]  # tensors in all but name
        buffers=torch.stack([a.buffers for a in answers])
        if answers
        else torch.zeros(0, profile.model.num_buffers),
        probes={key: torch.stack([a.probes[key] for a in answers]) for key in probed},
    )
