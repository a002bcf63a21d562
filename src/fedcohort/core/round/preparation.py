"""A round as far as its orders: who trains, and what each of them is to do."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from fedcohort.core.engine import Ahead, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Round
from fedcohort.core.roles.optional import Judges
from fedcohort.core.round.cohort import ChosenCohort, choose_all
from fedcohort.core.round.exchange import Surveyed, ask, lost, orders_for
from fedcohort.core.round.merge import plan_of
from fedcohort.core.round.questions import Asking, unasked
from fedcohort.core.state import State
from fedcohort.core.task import Task


class Prepared(NamedTuple):
    """What is known of a round when its training begins."""

    state: State  # with what was learned while choosing
    everyone: Round  # seen from all groups together
    choices: list[ChosenCohort]
    orders: list[Order]
    judged: bool  # whether answers come without the update at first
    surveyed: tuple[Surveyed, Surveyed]  # with every group's model: before cohorts were chosen, and after


def prepare(method: Method, state: State, task: Task, profile: Profile) -> Asking[Prepared]:
    """Asks as far as the method wants it, chooses all cohorts and writes their orders."""
    models = tuple(group.weights for group in state.groups)
    everyone = Round(state.round, profile, 0, profile.eligible, task.cohort_size, models=models)
    state, early = yield from ask(method, state, everyone, "before")
    state, choices = yield from choose_all(method, state, task, profile)
    selected = _distinct([choice.now.selected for choice in choices])
    everyone = replace(everyone, cohort=len(selected), selected=selected)
    missing = lost(task, selected, state.round)
    state, late = yield from ask(method, state, everyone, "chosen", missing)
    there = [client for client in selected.tolist() if client not in missing]
    quotas = {client: quota for choice in choices for client, quota in choice.quotas.items()}
    judged = isinstance(method.selector, Judges) and not method.silent
    orders = orders_for(method, state, task, profile, there, quotas, judged)
    return Prepared(state, everyone, choices, orders, judged, (early, late))


def orders_ahead(method: Method, state: State, task: Task, profile: Profile) -> Ahead:
    """The orders of the round after ``state``; none where they depend on what clients answer first.

    Clients on other machines get them together with the evaluation of the model that they begin from.
    """
    if plan_of(method.grouping, state.round) is not None:  # what they train is made anew first
        return Ahead(state.round, [])
    prepared = unasked(prepare(method, state, task, profile))
    return Ahead(state.round, [] if prepared is None else prepared.orders)


def _distinct(cohorts: Sequence[Ids]) -> Ids:
    """Everybody chosen, once, in order of choice."""
    return torch.tensor(list(dict.fromkeys(torch.cat(list(cohorts)).tolist())), dtype=torch.long)
