"""The only round loop. ``start`` makes a State, ``step`` turns it into the next one; both are pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from fedcohort.core import client_store, uploads
from fedcohort.core.engine import Answer, Engine
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Clients, Ids, Round, Updates
from fedcohort.core.round.cohort import judge
from fedcohort.core.round.exchange import collect, train
from fedcohort.core.round.groups import aggregate, begun, counting, cross, inherit, observe, receive, rounds
from fedcohort.core.round.merge import merge, present
from fedcohort.core.round.messages import Had, round_bytes
from fedcohort.core.round.preparation import prepare
from fedcohort.core.round.questions import answered
from fedcohort.core.round.sound import learn_soundly
from fedcohort.core.schema import bytes_of, fields_of, profile_fields, scale_fields
from fedcohort.core.state import State
from fedcohort.core.task import Task


@dataclass(frozen=True)
class Report:
    """What happened in one round."""

    number: int
    selected: Ids  # asked to train, group after group
    answered: Ids  # whose update was used, ascending
    lost: Ids  # did not answer, or could not take a single step
    rejected: Ids  # answered with something that is not a number, or makes none of the model
    loss: float  # training loss over the round, weighted by samples; NaN if nobody answered
    declined: Ids = field(
        default_factory=lambda: torch.zeros(0, dtype=torch.long)
    )  # trained, but the selector did not want their update
    spoilt: Ids = field(
        default_factory=lambda: torch.zeros(0, dtype=torch.long)
    )  # of the rejected: with their update the model would not be a number any more


def start(method: Method, task: Task, profile: Profile, folder: Path | None = None) -> State:
    """The state before the first round; ``folder`` is for what clients remember, if it is much."""
    method.check(profile)
    told = [
        field for field in profile_fields(method, profile) if not method.silent or field.record == "moments"
    ]
    up, down = (bytes_of(fields) * profile.num_clients for fields in (told, scale_fields(profile)))
    if method.pooled:  # the examples themselves travel
        train = task.data.train
        one = bytes_of(fields_of({"example": {"x": train.x[0], "y": train.y[0]}}))
        up, down = one * int(profile.size.sum()), 0
    clients = client_store.empty(uploads.blank(method, profile), len(profile.eligible), folder)
    return replace(begun(method, profile), clients=clients, bytes_up=up, bytes_down=down)


def step(method: Method, state: State, task: Task, profile: Profile, engine: Engine) -> tuple[State, Report]:
    """One round: choose, train, aggregate, regroup."""
    state = merge(method, state, task, profile)
    task, engine = present(method, state, task, engine)
    profile = replace(profile, model=task.model, local=task.local, began=task.began)
    before = state
    prepared = answered(prepare(method, state, task, profile), engine)
    state, everyone, choices = prepared.state, prepared.everyone, prepared.choices
    answers, updates = train(method, state, profile, engine, prepared.orders)
    if prepared.judged:
        wanted, choices = judge(method, choices, updates)
        answers, updates = collect(state, profile, engine, answers, wanted)
    everyone = replace(everyone, declined=torch.cat([choice.now.declined for choice in choices]).unique())
    chosen = [choice.now for choice in choices]

    def learn(used: Updates) -> tuple[State, list[int]]:
        there = set(used.ids.tolist())
        mine = {a.client: a.mine for a in answers if a.mine and a.client in there}
        clients = client_store.updated(state.clients, mine, state.round)
        return _learn(method, state, engine, everyone, chosen, used, clients)

    after, crossed, used = learn_soundly(learn, method, before, profile, updates)

    polled = torch.cat([choice.polled for choice in choices])
    rehearsed = frozenset[int]().union(*(choice.rehearsed for choice in choices))
    had = Had(rehearsed - frozenset(polled.tolist()), rehearsed)
    surveyed = torch.cat([each.ids for each in prepared.surveyed])
    quotas = [quota for choice in choices for quota in choice.quotas.values()]
    up, down = round_bytes(method, state, everyone, polled, surveyed, answers, crossed, had, quotas)
    if not method.silent:
        up += sum(choice.up for choice in choices) + sum(each.bytes for each in prepared.surveyed)
        down += sum(choice.down for choice in choices)
    up, down = after.bytes_up + up, state.bytes_down + down
    after = replace(after, round=state.round + 1, bytes_up=up, bytes_down=down)
    spoilt = updates.ids[~torch.isin(updates.ids, used.ids)]
    return after, replace(_report(everyone, used, answers), spoilt=spoilt)


def _learn(
    method: Method,
    state: State,
    engine: Engine,
    everyone: Round,
    chosen: Sequence[Round],
    updates: Updates,
    clients: Clients,
) -> tuple[State, list[int]]:
    """What the updates make of groups and models, and how many clients counted for each group."""
    profile = everyone.profile
    groups, updates = receive(method, state.groups, updates, everyone)
    grouping = method.grouping.assign(state.grouping, updates, everyone)
    groups, told = inherit(method, profile, groups, state.grouping, grouping, state.clients)
    updates = replace(updates, group=grouping["group"][updates.ids])
    nows = rounds(method, grouping, everyone, chosen, len(groups))
    crossed = [
        cross(method, updates.where(counting(method, updates, now)), group, profile, engine, clients)
        for group, now in zip(groups, nows, strict=True)
    ]
    groups = tuple(aggregate(method, *each) for each in zip(groups, crossed, nows, strict=True))
    groups = observe(method, groups, grouping, everyone, chosen, updates)
    models = method.grouping.remodel(grouping, [group.weights for group in groups], updates, everyone)
    groups = tuple(replace(group, weights=new) for group, new in zip(groups, models, strict=True))
    regrouped = method.grouping.regroup(grouping, updates, everyone)
    groups, more = inherit(method, profile, groups, grouping, regrouped, clients)
    up = state.bytes_up + told + more
    after = replace(state, groups=groups, grouping=regrouped, clients=clients, bytes_up=up)
    return after, [len(own) for own in crossed]


def _report(now: Round, updates: Updates, answers: Sequence[Answer]) -> Report:
    known = set(updates.ids.tolist()) | set(now.declined.tolist())
    rejected = [a.client for a in answers if a.steps and a.client not in known]
    lost = [c for c in now.selected.tolist() if c not in known and c not in rejected]
    loss = float(updates.shares @ updates.loss) if len(updates) else float("nan")
    return Report(now.number, now.selected, updates.ids, _ids(lost), _ids(rejected), loss, now.declined)


def _ids(clients: list[int]) -> Ids:
    return torch.tensor(clients, dtype=torch.long)
