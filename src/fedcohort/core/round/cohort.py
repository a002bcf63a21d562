"""Choosing who trains: one cohort after the other, each by its selector."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core import batchnorm
from fedcohort.core.engine import Engine, ModelTrial
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Round, Updates
from fedcohort.core.roles.optional import Judges, Polls, Rations, Rehearses
from fedcohort.core.round.exchange import lost, orders_for, train
from fedcohort.core.round.groups import aggregate, cross, likely, members_of, receive
from fedcohort.core.round.messages import Had, round_bytes
from fedcohort.core.round.questions import Asking
from fedcohort.core.schema import bytes_of, poll_fields
from fedcohort.core.state import State
from fedcohort.core.task import Task


class ChosenCohort(NamedTuple):
    """One group's cohort, and what choosing it took."""

    now: Round
    memory: Memory  # the selector's, with what it learned from the losses
    polled: Ids
    quotas: dict[int, Tensor]  # of clients that may not use all their samples
    rehearsed: frozenset[int] = frozenset()  # who trained a copy of the model first
    up: int = 0  # bytes of that rehearsal
    down: int = 0


def choose_all(
    method: Method, state: State, task: Task, profile: Profile
) -> Asking[tuple[State, list[ChosenCohort]]]:
    """All cohorts, and the state with what selectors learned while choosing."""
    odds = method.grouping.odds(state.grouping, profile)
    choices, groups = [], list(state.groups)
    for number in range(odds.shape[1]):
        choice = yield from choose(method, state, number, odds[:, number], task, profile)
        groups[number] = replace(groups[number], selector=choice.memory)
        choices.append(choice)
    return replace(state, groups=tuple(groups)), choices


def choose(
    method: Method, state: State, number: int, odds: Tensor, task: Task, profile: Profile
) -> Asking[ChosenCohort]:
    """One cohort: poll, rehearse, learn, select, as far as the selector wants it."""
    group, members = state.groups[number], likely(odds, profile)
    wanted = method.grouping.cohort(len(members), profile) if len(members) else 0
    own = odds[members]
    models = tuple(each.weights for each in state.groups)
    now = Round(
        state.round,
        profile,
        number,
        members,
        wanted,
        odds=None if (own == own[:1]).all() else own,
        models=models,
    )
    choice = ChosenCohort(replace(now, selected=members[:0]), group.selector, members[:0], {})
    if not wanted:
        return choice
    if method.grouping.calls_all(state.grouping, number):
        return choice._replace(now=replace(now, cohort=len(members), selected=members))
    selector, losses = method.selector, None
    polled = selector.candidates(group.selector, now) if isinstance(selector, Polls) else None
    if polled is not None and isinstance(selector, Polls):
        samples, rehearsed = selector.poll_samples(now), None
        losses = yield from _poll(state, polled, samples, profile)
        cast = selector.rehearse(group.selector, now) if isinstance(selector, Rehearses) else None
        if cast is not None:
            cohort = replace(now, selected=cast)
            after, up, down = yield lambda engine: _rehearse(method, state, cohort, polled, task, engine)
            rehearsed = yield from _poll(after, polled, samples, profile)
            moved = [
                new.weights is not old.weights for new, old in zip(after.groups, state.groups, strict=True)
            ]
            sent = sum(moved[g] for g in state.grouping["group"][polled].tolist())
            up += bytes_of(poll_fields()) * len(polled)
            down += batchnorm.travelling(group.weights, profile).bytes * sent
            choice = choice._replace(rehearsed=frozenset(cast.tolist()), up=up, down=down)
        memory = selector.learn(group.selector, now, losses, rehearsed)
        choice = choice._replace(polled=polled, memory=memory)
    now = replace(now, selected=selector.select(choice.memory, now, losses))
    quota = selector.allow(choice.memory, now) if isinstance(selector, Rations) else None
    quotas = {} if quota is None else dict(zip(now.selected.tolist(), quota, strict=True))
    return choice._replace(now=now, quotas=quotas)


def _poll(state: State, polled: Ids, samples: int | None, profile: Profile) -> Asking[Tensor]:
    """[N]: the loss of its group's model at each client asked, NaN elsewhere and where it is not a number."""
    losses = torch.full((profile.num_clients,), torch.nan)
    group = state.grouping["group"][polled]
    kept = batchnorm.kept(profile, state.clients)
    for number in group.unique().tolist():
        own = polled[group == number]
        trial = ModelTrial([state.groups[number].weights], own, kept)
        answers = yield partial(_losses, trial, samples, state.round)
        losses[own] = torch.where(answers.isfinite(), answers, torch.nan)
    return losses


def _losses(trial: ModelTrial, samples: int | None, number: int, engine: Engine) -> Tensor:
    return engine.losses(trial, samples, number)


def _rehearse(
    method: Method, state: State, now: Round, polled: Ids, task: Task, engine: Engine
) -> tuple[State, int, int]:
    """The state after a round of ``now.selected`` that is then forgotten, and its bytes up and down beyond
    the poll, from which ``polled`` clients hold the model."""
    there = [
        client for client in now.selected.tolist() if client not in lost(task, now.selected, state.round)
    ]
    orders = orders_for(method, state, task, now.profile, there, {})
    answers, updates = train(method, state, now.profile, engine, orders)
    begun, updates = receive(method, state.groups, updates, now)
    groups, crossed = [], []
    for number, group in enumerate(begun):
        here = replace(now, group=number, members=members_of(state.grouping, number, now.profile))
        own = cross(method, updates.where(updates.group == number), group, now.profile, engine, state.clients)
        groups.append(aggregate(method, group, own, here))
        crossed.append(len(own))
    nobody = now.selected[:0]
    had = Had(frozenset(polled.tolist()))
    traffic = round_bytes(method, state, now, nobody, nobody, answers, crossed, had)
    return replace(state, groups=tuple(groups)), *traffic


def judge(
    method: Method, choices: list[ChosenCohort], updates: Updates
) -> tuple[Updates, list[ChosenCohort]]:
    """The updates that selectors want, and the choices with who was declined."""
    selector, wanted = method.selector, torch.zeros(len(updates), dtype=torch.bool)
    assert isinstance(selector, Judges)  # noqa: S101  # else nothing is judged
    for choice in choices:
        here = torch.isin(updates.ids, choice.now.selected)
        if not here.any():
            continue
        verdict = selector.judge(choice.memory, choice.now, updates.where(here))
        # A client of several cohorts uploads if one of them wants it.
        wanted[here] |= True if verdict is None else verdict
    out = ~wanted
    if not out.any():
        return updates, choices
    marked = []
    for choice in choices:
        declined = updates.ids[out & torch.isin(updates.ids, choice.now.selected)]
        marked.append(choice._replace(now=replace(choice.now, declined=declined)))
    return updates.where(~out), marked
