"""What travels: the messages down to clients, and the bytes of a round in both directions."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedcohort.core.batchnorm import travelling
from fedcohort.core.engine import Answer
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Round
from fedcohort.core.state import State

FLOAT = 4  # bytes of a number on the wire


def messages(method: Method, state: State, clients: Iterable[int], profile: Profile) -> list[Memory]:
    """What each client is sent; clients that are sent the same share one object."""
    models = [group.weights for group in state.groups]
    common = [
        {**travelling(group.weights, profile)._asdict(), **method.aggregator.broadcast(group.aggregator)}
        for group in state.groups
    ]
    downs = []
    for client in clients:
        down = common[int(state.grouping["group"][client])]
        own = method.grouping.tailor(state.grouping, client, models)
        downs.append({**down, **own} if own else down)
    return downs


class Had(NamedTuple):
    """Who was sent what earlier in a round, and holds it still."""

    model: frozenset[int] = frozenset()  # the model of its group
    extras: frozenset[int] = frozenset()  # what the aggregator sends beside it


def round_bytes(
    method: Method,
    state: State,
    now: Round,
    polled: Ids,
    asked: Ids,
    answers: Sequence[Answer],
    crossed: Sequence[int],
    had: Had,
) -> tuple[int, int]:
    """Up and down in this round, from the tensors that were sent, beyond what clients ``had``.

    Those ``asked`` hold every group's model, those ``polled`` their own; nobody is sent a model twice.
    """
    if method.silent:
        return 0, 0
    weights = travelling(state.groups[0].weights, now.profile)
    model = weights.bytes
    selected, declined = set(now.selected.tolist()), set(now.declined.tolist())
    own = (selected | set(polled.tolist())) - had.model
    models = dict.fromkeys(own, 1) | dict.fromkeys(asked.tolist(), len(state.groups))
    extra = _bytes(method.aggregator.broadcast(state.groups[0].aggregator))
    extras = sum(models.get(client, 1) - (client in had.extras) for client in selected)
    down = model * sum(models.values()) + extra * extras
    down -= method.grouping.common(now.profile.model, weights) * sum(count - 1 for count in models.values())
    if selected:
        message = messages(method, state, now.selected[:1].tolist(), now.profile)[0]
        down += (_bytes(message) - model - extra) * len(selected)
    up = FLOAT * len(polled)
    for answer in answers:
        up += _bytes(answer.probes)
        if answer.client in declined:
            continue
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
