"""The only round loop. ``start`` makes a State, ``step`` turns it into the next one; both are pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from fedcohort.core.flat import Weights
from fedcohort.core.method import Method
from fedcohort.core.parts import Ids, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.state import Group, State
from fedcohort.core.task import Task
from fedcohort.engines import Answer, Engine, Order

FLOAT = 4  # bytes of a number on the wire


@dataclass(frozen=True)
class Report:
    """What happened in one round."""

    number: int
    selected: Ids  # asked to train, group after group
    answered: Ids  # whose update was used, ascending
    lost: Ids  # did not answer, or could not take a single step
    rejected: Ids  # answered with something that is not a number
    loss: float  # training loss over the round, weighted by samples; NaN if nobody answered


def start(method: Method, task: Task, profile: Profile) -> State:
    """The state before the first round."""
    method.check(profile)
    weights = task.model.init(task.seed)
    grouping = method.grouping.init_grouping(profile)
    group = Group(weights, method.selector.init_selector(profile), method.aggregator.init_aggregator(profile))
    count = int(grouping["group"].max()) + 1
    up = FLOAT * profile.num_classes * len(profile.eligible) if "counts" in method.uses else 0
    if method.pooled:  # the examples themselves travel
        example = task.federation.train.x[0]
        up = int(profile.size.sum()) * (example.numel() * example.element_size() + FLOAT)
    return State(0, (group,) * count, grouping, bytes_up=up)


def step(method: Method, state: State, task: Task, profile: Profile, engine: Engine) -> tuple[State, Report]:
    """One round: choose, train, aggregate, regroup."""
    choices = [_choose(method, state, number, task, profile, engine) for number in range(len(state.groups))]
    polled = torch.cat([asked for _, asked in choices])
    selected = torch.cat([now.selected for now, _ in choices])
    everyone = Round(state.round, profile, 0, profile.eligible, len(selected), selected)

    lost = _lost(task, selected, state.round)
    orders = _orders(method, state, task, profile, [c for c in selected.tolist() if c not in lost])
    answers = engine.train(method.objective, orders, state.round)
    usable = sorted((a for a in answers if a.steps and _is_finite(a)), key=lambda answer: answer.client)
    clients = {**state.clients, **{a.client: a.mine for a in usable if a.mine}}
    updates = _stack(usable, state, profile)

    grouping = method.grouping.assign(state.grouping, updates, everyone)
    groups = _inherit(method, profile, state.groups, state.grouping, grouping, state.clients)
    updates = replace(updates, group=grouping["group"][updates.ids])
    crossed = [
        _cross(method, updates.where(updates.group == n), groups[n], profile, engine)
        for n in range(len(groups))
    ]
    rounds = [
        replace(
            choices[n][0] if n < len(choices) else replace(everyone, group=n, selected=selected[:0]),
            members=_members(grouping, n, profile),
        )
        for n in range(len(groups))
    ]
    groups = tuple(_aggregate(method, *each) for each in zip(groups, crossed, rounds, strict=True))
    regrouped = method.grouping.regroup(grouping, updates, everyone)
    groups = _inherit(method, profile, groups, grouping, regrouped, clients)

    up, down = _traffic(method, state, selected, polled, answers, [len(own) for own in crossed])
    after = State(state.round + 1, groups, regrouped, clients, state.bytes_up + up, state.bytes_down + down)
    return after, _report(state.round, selected, updates, answers)


def _report(number: int, selected: Ids, updates: Updates, answers: Sequence[Answer]) -> Report:
    used = set(updates.ids.tolist())
    rejected = [a.client for a in answers if a.steps and a.client not in used]
    lost = [c for c in selected.tolist() if c not in used and c not in rejected]
    loss = float(updates.shares @ updates.trace.nanmean(1)) if len(updates) else float("nan")
    return Report(number, selected, updates.ids, _ids(lost), _ids(rejected), loss)


def _choose(
    method: Method, state: State, number: int, task: Task, profile: Profile, engine: Engine
) -> tuple[Round, Ids]:
    """One group's round with its cohort chosen, and who was polled for it."""
    group, members = state.groups[number], _members(state.grouping, number, profile)
    fraction = task.cohort_size / max(1, len(profile.eligible))
    wanted = method.grouping.cohort(len(members), fraction) if len(members) else 0
    now = Round(state.round, profile, number, members, wanted)
    asked = method.selector.candidates(group.selector, now) if wanted else None
    losses = None
    if asked is not None:
        losses = torch.full((profile.num_clients,), torch.nan)
        answers = engine.losses(group.weights, asked)
        losses[asked] = torch.where(answers.isfinite(), answers, torch.nan)
    chosen = method.selector.select(group.selector, now, losses) if wanted else members[:0]
    return replace(now, selected=chosen), members[:0] if asked is None else asked


def _members(grouping: Memory, number: int, profile: Profile) -> Ids:
    eligible = profile.eligible
    return eligible[grouping["group"][eligible] == number]


def _lost(task: Task, selected: Ids, number: int) -> set[int]:
    """Clients whose answer will not count; may name clients that were not selected."""
    lost = set(task.faults.lost(selected, task.seed, number).tolist())
    return lost | task.slow if task.faults.straggler_result == "drop" else lost


def _orders(method: Method, state: State, task: Task, profile: Profile, clients: list[int]) -> list[Order]:
    downs = [
        {**group.weights._asdict(), **method.aggregator.broadcast(group.aggregator)} for group in state.groups
    ]
    blank = method.objective.init_client(profile)
    lr = task.local.lr_at(state.round)
    group = state.grouping["group"]
    return [
        Order(c, downs[int(group[c])], state.clients.get(c, blank), lr, task.steps_for(c, state.round))
        for c in clients
    ]


def _is_finite(answer: Answer) -> bool:
    values = (*answer.up.values(), *answer.mine.values(), answer.buffers)
    return all(bool(value.isfinite().all()) for value in values)


def _stack(answers: Sequence[Answer], state: State, profile: Profile) -> Updates:
    ids = torch.tensor([a.client for a in answers], dtype=torch.long)
    longest = max((a.steps for a in answers), default=0)
    trace = torch.full((len(answers), longest), torch.nan)
    for row, answer in enumerate(answers):
        trace[row, : answer.steps] = answer.trace
    keys = answers[0].up if answers else ()
    return Updates(
        ids=ids,
        group=state.grouping["group"][ids],
        size=profile.size[ids],
        steps=torch.tensor([a.steps for a in answers], dtype=torch.long),
        reach=torch.tensor([a.reach for a in answers]),
        trace=trace,
        up={key: torch.stack([a.up[key] for a in answers]) for key in keys},
        buffers=torch.stack([a.buffers for a in answers])
        if answers
        else torch.zeros(0, profile.model.num_buffers),
    )


def _cross(method: Method, own: Updates, group: Group, profile: Profile, engine: Engine) -> Updates:
    """One group's updates, with the accuracy of each new model on each other's validation data if asked
    for."""
    if "cross_accuracy" not in method.uses or not len(own):
        return own
    models = [
        Weights(group.weights.params + delta, buffers)
        for delta, buffers in zip(own.up["delta"], own.buffers, strict=True)
    ]
    return replace(own, cross=engine.cross_accuracy(models, own.ids), cross_size=profile.held_out[own.ids])


def _aggregate(method: Method, group: Group, own: Updates, now: Round) -> Group:
    """The group after its updates; unchanged but for what the selector learned when nobody answered."""
    weights, memory = group.weights, group.aggregator
    if len(own) and "delta" in own.up:
        shares = method.aggregator.weights(memory, own, now)
        move = shares.to(weights.params.dtype) @ own.up["delta"]
        params, memory = method.aggregator.step(weights.params, move, memory, own, now)
        weights = Weights(params, now.profile.model.combine_buffers(own.buffers, own.shares))
    return Group(weights, method.selector.observe(group.selector, now, own), memory)


def _inherit(
    method: Method,
    profile: Profile,
    groups: tuple[Group, ...],
    before: Memory,
    after: Memory,
    clients: dict[int, Memory],
) -> tuple[Group, ...]:
    """Groups for the new numbering: a number that did not exist becomes a copy of where its members came
    from."""
    count = int(after["group"].max()) + 1
    if count <= len(groups):
        return groups
    grown = list(groups)
    touched = set()
    for number in range(len(groups), count):
        parent = int(before["group"][_members(after, number, profile)[0]])
        touched.add(parent)
        grown.append(groups[parent])
    for number in [*touched, *range(len(groups), count)]:
        members = _members(after, number, profile)
        memory = method.aggregator.inherit(grown[number].aggregator, members, clients)
        grown[number] = replace(grown[number], aggregator=memory)
    return tuple(grown)


def _traffic(
    method: Method,
    state: State,
    selected: Ids,
    polled: Ids,
    answers: Sequence[Answer],
    crossed: Sequence[int],
) -> tuple[int, int]:
    """Bytes up and down in this round, from the tensors that were sent. A polled client already holds the
    model."""
    if method.silent:
        return 0, 0
    model = state.groups[0].weights.bytes
    receivers = set(selected.tolist()) | set(polled.tolist())
    extra = _bytes(method.aggregator.broadcast(state.groups[0].aggregator))
    down = model * len(receivers) + extra * len(selected)
    up = FLOAT * len(polled)
    for answer in answers:
        up += _bytes(answer.up) + answer.buffers.numel() * answer.buffers.element_size()
        up += FLOAT * (answer.steps if "trace" in method.uses else 0) + FLOAT * len(
            {"steps", "loss"} & method.uses
        )
    if "cross_accuracy" in method.uses:  # each new model goes to every other client of its cohort
        up += sum(FLOAT * count**2 for count in crossed)
        down += sum(model * count * (count - 1) for count in crossed)
    return up, down


def _bytes(memory: Memory) -> int:
    return sum(value.numel() * value.element_size() for value in memory.values())


def _ids(clients: list[int]) -> Ids:
    return torch.tensor(clients, dtype=torch.long)
