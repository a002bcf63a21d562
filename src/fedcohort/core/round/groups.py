"""What a round does to the groups: new ones, their next models, what the server remembers of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedcohort.core import batchnorm
from fedcohort.core.engine import Engine, ModelTrial
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Clients, Ids, Memory, Round, Updates
from fedcohort.core.roles.optional import Broadcasts
from fedcohort.core.schema import answers_of, bytes_of, memory_fields
from fedcohort.core.state import Group, State
from fedcohort.models.flat import Weights


def members_of(grouping: Memory, number: int, profile: Profile) -> Ids:
    """The clients of a group that have data."""
    return _those(grouping["group"] == number, profile)


def likely(odds: Tensor, profile: Profile) -> Ids:
    """Who may be drawn."""
    return _those(odds > 0, profile)


def _those(chosen: Tensor, profile: Profile) -> Ids:
    """Of the clients that have data. All of them are not looked for again, as there may be a million."""
    found = chosen & (profile.size > 0)
    return profile.eligible if found.sum() == len(profile.eligible) else found.nonzero()[:, 0]


def inherit(
    method: Method,
    profile: Profile,
    groups: tuple[Group, ...],
    before: Memory,
    after: Memory,
    clients: Mapping[int, Memory],
) -> tuple[tuple[Group, ...], int]:
    """Groups for the new numbering: a number that did not exist becomes a copy of where its members came
    from. Where members changed, so may what the server's optimiser remembers of them; the bytes in which
    clients tell it what they remember. Who is asked for one memory is asked for all of them."""
    grown, looked = list(groups), False
    for number in range(len(groups), int(after["group"].max()) + 1):
        with_data, everyone = members_of(after, number, profile), (after["group"] == number).nonzero()[:, 0]
        first = (with_data if len(with_data) else everyone)[0]
        grown.append(groups[int(before["group"][first])])
    moved = _those(before["group"] != after["group"], profile)
    for number in torch.cat([before["group"][moved], after["group"][moved]]).unique().tolist():
        members = members_of(after, number, profile)
        if len(members) and isinstance(method.server_optimiser, Broadcasts):
            known = grown[number].known("optimiser")
            memory = method.server_optimiser.inherit(known, members, clients)
            grown[number] = replace(grown[number], server={**grown[number].server, "optimiser": memory})
            looked |= any(client in clients for client in members.tolist())
    if not (looked and "memory" in answers_of(method)):
        return tuple(grown), 0
    return tuple(grown), len(clients) * bytes_of(memory_fields(method.objective.init_client(profile)))


def first_group(method: Method, model: Weights, profile: Profile) -> Group:
    """A group before its first round."""
    server = {place: part.init_server(profile) for place, part in method.at_server.items()}
    return Group(model, method.selector.init_selector(profile), server)


def begun(method: Method, profile: Profile) -> State:
    """All groups before the first round."""
    grouping = method.grouping.init_grouping(profile)
    models = method.grouping.init_models(grouping, profile)
    first = first_group(method, models[0], profile)
    return State(0, tuple(replace(first, weights=model) for model in models), grouping)


def rounds(
    method: Method, grouping: Memory, everyone: Round, chosen: Sequence[Round], count: int
) -> list[Round]:
    """The round as each group sees it once groups are final."""
    if method.grouping.shared:
        return list(chosen)
    return [_part(everyone, n, members_of(grouping, n, everyone.profile), chosen) for n in range(count)]


def _part(everyone: Round, number: int, members: Ids, chosen: Sequence[Round]) -> Round:
    """The round of these members."""
    now = chosen[number] if number < len(chosen) else replace(everyone, group=number)
    inside = torch.zeros(everyone.profile.num_clients, dtype=torch.bool)
    inside[members] = True
    selected, declined = (ids[inside[ids]] for ids in (everyone.selected, everyone.declined))
    return replace(now, members=members, selected=selected, declined=declined, odds=None)


def counting(method: Method, updates: Updates, now: Round) -> Tensor:
    """[S]: whose update counts for the group."""
    return torch.isin(updates.ids, now.selected) if method.grouping.shared else updates.group == now.group


def cross(
    method: Method, own: Updates, group: Group, profile: Profile, engine: Engine, clients: Clients
) -> Updates:
    """One group's updates, with the accuracy of each new model on each other's validation data if asked
    for."""
    if "cross_accuracy" not in method.uses or not len(own):
        return own
    models = [
        Weights(group.weights.params + delta, buffers)
        for delta, buffers in zip(own.up["delta"], own.buffers, strict=True)
    ]
    table = engine.cross_accuracy(ModelTrial(models, own.ids, batchnorm.kept(profile, clients)))
    return replace(own, cross=table, cross_size=profile.held_out[own.ids])


def receive(
    method: Method, groups: tuple[Group, ...], updates: Updates, everyone: Round
) -> tuple[tuple[Group, ...], Updates]:
    """The updates as transforms at the server leave them to all that follows, group by group, and the groups
    with what the transforms remember."""
    if not method.transforms or "delta" not in updates.up:
        return groups, updates
    received, left = list(groups), []
    for number, group in enumerate(groups):
        own, server = updates.where(updates.group == number), dict(group.server)
        now = replace(everyone, group=number)
        for place, transform in zip(method.transform_places, method.transforms, strict=True):
            if len(own):
                own, server[place] = transform.receive(own, group.known(place), now)
        received[number] = replace(group, server=server)
        left.append(own)
    return tuple(received), Updates.together(left)


def aggregate(method: Method, group: Group, own: Updates, now: Round) -> Group:
    """The group after its updates; unchanged when nobody answered."""
    if not len(own) or "delta" not in own.up:
        return group
    server, weights, averaging = dict(group.server), group.weights, method.averaging
    place = "optimiser" if averaging is method.server_optimiser else "averaging"
    shares = averaging.weights(group.known(place), own, now)
    move = averaging.combine(shares.to(weights.params.dtype), own)
    params, server["optimiser"] = method.server_optimiser.step(
        weights.params, move, group.known("optimiser"), own, now
    )
    weights = weights._replace(params=params)
    if own.buffers.shape[1]:  # statistics that clients keep are in no update
        parts = averaging.statistics(shares, own)
        weights = weights._replace(buffers=now.profile.model.combine_buffers(own.buffers, parts))
    return replace(group, weights=weights, server=server)


def observe(
    method: Method,
    groups: tuple[Group, ...],
    grouping: Memory,
    everyone: Round,
    chosen: Sequence[Round],
    updates: Updates,
) -> tuple[Group, ...]:
    """The groups with what the selector of each cohort learned from the round."""
    odds = method.grouping.odds(grouping, everyone.profile)
    out = list(groups)
    for number in range(odds.shape[1]):
        members = likely(odds[:, number], everyone.profile)
        now = chosen[number] if method.grouping.shared else _part(everyone, number, members, chosen)
        own = updates.where(torch.isin(updates.ids, now.selected))
        memory = method.selector.observe(groups[number].selector, now, own)
        out[number] = replace(groups[number], selector=memory)
    return tuple(out)
