"""What the next round will order, where that is known before anybody is asked.

A step is pure, so it can be taken twice: here with an engine that asks nobody and ends it at the first
question. Clients on other machines get these orders together with the evaluation of the model that they begin
from.
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from fedcohort.core.engine import Ahead, Order
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.roles import Objective
from fedcohort.core.round.loop import step
from fedcohort.core.state import State
from fedcohort.core.task import Task


class _Asked(Exception):  # noqa: N818  # not a mistake
    """The step got as far as a question, or as its orders."""

    def __init__(self, orders: list[Order]) -> None:
        super().__init__()
        self.orders = orders


class _Nobody:
    """An engine without clients."""

    messages = 0

    def __init__(self, task: Task) -> None:
        self.task = task

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> NoReturn:
        raise _Asked(list(orders))

    def ask(self, *_: Any, **__: Any) -> NoReturn:
        raise _Asked([])

    merged = collect = losses = survey = cross_accuracy = score = ask


def orders_ahead(method: Method, state: State, task: Task, profile: Profile) -> Ahead:
    """The orders of the round after ``state``; none where its cohort depends on what clients answer first."""
    try:
        step(method, state, task, profile, _Nobody(task))
    except _Asked as asked:
        return Ahead(state.round, asked.orders)
    return Ahead(state.round, [])
