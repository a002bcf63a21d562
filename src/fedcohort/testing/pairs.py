"""What composes with what: every two parts run together, or one sentence names both and says why not.

:func:`refusal` says which of the two it is; ``docs/compositions.md`` is written from it. Pairs that run
are not tried one by one: :func:`covering` packs them into methods of several parts, and
:func:`check_composition` tries these.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

import torch

from fedcohort.core.evaluate import served_by
from fedcohort.core.method import DEFAULTS, METHODS, Method, make
from fedcohort.core.profile import Local
from fedcohort.core.round.cohort import choose_all
from fedcohort.core.round.questions import answered
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.engines.pool import PoolEngine
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.testing import play, tiny_task
from fedcohort.util.errors import UserError

ROUNDS = {True: 3, False: 2}  # with groups, which take a while to be found, and without
BRIEF = Local(lr=0.2, epochs=1, batch=24)  # one step or two, as samples allow
APART = 1e-5  # how far the engines' weights may be from one another

# Settings under which so many rounds on a tiny task show all that a method does: fit, ask, split, merge.
BRISK: dict[str, dict[str, Any]] = {
    "cfl": {"eps1": 9.0, "eps2": 0.0},
    "fedconcat": {"groups": 2, "rounds": 2},
    "fedcor": {"warmup": 0, "interval": 1, "first_iterations": 5, "iterations": 5},
    "fedgwc": {"tolerance": 0.9, "min_group": 1},
    "fedsoft": {"groups": 2},
    "fesem": {"groups": 2},
    "ifca": {"groups": 2},
}


def parts() -> list[str]:
    """Every method but the centralised reference, which is a whole and takes no partner."""
    return [name for name in METHODS.names() if not METHODS.get(name).pooled]


def pairs() -> list[tuple[str, str]]:
    """Every two parts."""
    return list(combinations(parts(), 2))


def compose(*names: str) -> Method:
    """These parts, the default for every other role; UserError when they are refused."""
    return Method.of(*(part for name in names for part in make(name, BRISK.get(name, {}))))


def refusal(*names: str) -> str | None:
    """The sentence that refuses these parts; None when they run."""
    try:
        compose(*names)
    except UserError as mistake:
        return str(mistake)
    return None


def covering() -> list[tuple[str, ...]]:
    """Parts that run together, as many as help, until every pair that runs is in one of these."""
    runs = {frozenset(pair): None for pair in pairs() if refusal(*pair) is None}  # a dict, for its order
    left, found = dict(runs), []
    while left:
        chosen, others = sorted(next(iter(left))), parts()
        while others:
            new = [sum(frozenset((name, one)) in left for one in chosen) for name in others]
            name = others.pop(new.index(max(new)))
            if not max(new):
                break
            if all(frozenset((name, one)) in runs for one in chosen) and refusal(*chosen, name) is None:
                chosen.append(name)
        for pair in combinations(chosen, 2):
            left.pop(frozenset(pair), None)
        found.append(tuple(chosen))
    return found


def check_composition(method: Method) -> None:
    """Runs the method on both engines; AssertionError with a sentence when something is wrong. The faster one
    runs it, the reference judges it where there is most to judge."""
    task = tiny_task(local=BRIEF)
    state, _ = play(method, task, 0)
    for group in state.groups:
        served = served_by(method, group)
        assert served.equal(group.weights.params), f"{method}: untrained, a group is served another's model"
    states, reports, engine = [state], [], PoolEngine(task.for_method(method), workers=1)
    rounds = ROUNDS[method.grouping.name != DEFAULTS["grouping"]]
    for _ in range(rounds):
        state, (report,) = play(method, task, 1, states[-1], engine)
        states.append(state)
        reports.append(report)
    assert state.round == rounds, f"{method}: {state.round} rounds instead of {rounds}"
    for report in reports:
        assert len(report.answered), f"{method}: nobody's update counted in round {report.number}"
    for number, group in enumerate(state.groups):
        assert group.weights.params.isfinite().all(), (
            f"{method}: the weights of group {number} are not finite"
        )
    if not method.silent:
        assert state.bytes_up > 0, f"{method}: no byte was counted up"
        assert state.bytes_down > 0, f"{method}: no byte was counted down"
    assert int(state.grouping["group"].max()) < len(state.groups), f"{method}: a client's group has no model"
    if not state.encoders:  # merged models have one cohort, of everybody
        _check_cohorts(method, state, task)
    _check_engines(method, states, task)


def _check_cohorts(method: Method, state: State, task: Task) -> None:
    """The next cohorts: distinct members of the group they are chosen for."""
    profile = task.profile(method)
    _, choices = answered(choose_all(method, state, task, profile), ReferenceEngine(task))
    own_cohorts = len(choices) == len(state.groups) and not method.grouping.shared
    for choice in choices:
        selected, group = choice.now.selected, choice.now.group
        assert len(selected.unique()) == len(selected), f"{method}: a client is chosen twice"
        assert torch.isin(selected, choice.now.members).all(), f"{method}: a chosen client is no member"
        if own_cohorts:
            there = state.grouping["group"][selected]
            assert (there == group).all(), f"{method}: a client of group {there} is chosen for {group}"


def _check_engines(method: Method, states: Sequence[State], task: Task) -> None:
    """In the last round, when everything remembers something, the pool made what the reference loop makes of
    the same state; also in the one before, where models were merged in between. Not of states of its own:
    where an output comes as close to zero as sums of another order are to each other, ReLU may later take
    different sides."""
    judged = 2 if states[-1].encoders else 1
    for before, state in list(pairwise(states))[-judged:]:
        _compare(method, state, play(method, task, 1, before)[0])


def _compare(method: Method, pool: State, state: State) -> None:
    assert len(pool.groups) == len(state.groups), f"{method}: engines disagree on the number of groups"
    for ours, theirs in zip(pool.groups, state.groups, strict=True):
        gap = float((ours.weights.params - theirs.weights.params).abs().max())
        assert gap < APART, f"{method}: the pool engine is {gap:.1e} away from the reference"
