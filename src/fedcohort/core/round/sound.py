"""A state holds numbers only: a round that would break it is made again without the client that broke it."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Updates
from fedcohort.core.state import Group, State

Learn = Callable[[Updates], tuple[State, list[int]]]


def learn_soundly(
    learn: Learn, method: Method, before: State, profile: Profile, updates: Updates
) -> tuple[State, list[int], Updates]:
    """The next state, how many clients counted for each group, and the updates that it is made of: all, all
    but the largest or, where that is not enough, none, and nothing has changed."""
    for used in _ever_fewer(updates):
        after, crossed = learn(used)
        if is_sound(method, before, after, profile):
            return after, crossed, used
    return before, [0] * len(before.groups), updates.where(torch.zeros(len(updates), dtype=torch.bool))


def is_sound(method: Method, before: State, after: State, profile: Profile) -> bool:
    """Whether all models are numbers, and all memories in which nothing was left open before."""
    if not all(_is_finite(value) for group in after.groups for value in group.weights):
        return False
    first = {"selector": partial(method.selector.init_selector, profile)}
    first |= {place: partial(part.init_server, profile) for place, part in method.at_server.items()}
    for number, group in enumerate(after.groups):
        old = _memories(before.groups[number]) if number < len(before.groups) else {}
        for owner, memory in _memories(group).items():
            if _breaks(old.get(owner, {}), memory, first[owner]):
                return False
    return not _breaks(before.grouping, after.grouping, lambda: method.grouping.init_grouping(profile))


def _memories(group: Group) -> dict[str, Memory]:
    return {"selector": group.selector, **group.server}


def _breaks(before: Memory, after: Memory, blank: Callable[[], Memory]) -> bool:
    """Whether something is no number any more that was one. Memories may begin with NaN or infinity, for what
    is not known yet: there it may come back."""
    lost = [key for key, value in after.items() if not _is_finite(value)]
    lost = [key for key in lost if key not in before or _is_finite(before[key])]
    return bool(lost) and any(_is_finite(value) for key, value in blank().items() if key in lost)


def _is_finite(value: Tensor) -> bool:
    """One pass where all is well: a sum is finite only if its terms are."""
    return bool(value.sum().isfinite()) or bool(value.isfinite().all())


def _ever_fewer(updates: Updates) -> Iterator[Updates]:
    """All, then all but the one with the largest norms."""
    yield updates
    if len(updates):
        sent = (*updates.up.values(), updates.buffers)
        norm = partial(torch.linalg.vector_norm, dtype=torch.float64)
        total = sum(torch.stack([norm(row) for row in rows]) for rows in sent)
        yield updates.where(torch.arange(len(updates)) != torch.as_tensor(total).argmax())
