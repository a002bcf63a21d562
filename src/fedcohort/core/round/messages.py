"""What travels: the messages down to clients, and the bytes of a round in both directions."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from fedcohort.core.batchnorm import travelling
from fedcohort.core.engine import Answer
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Round
from fedcohort.core.roles.optional import Broadcasts, Tailors
from fedcohort.core.schema import (
    bytes_of,
    cross_fields,
    fields_of,
    model_records,
    order_records,
    poll_fields,
    training_fields,
    update_fields,
)
from fedcohort.core.state import Group, State
from fedcohort.core.uploads import record


def messages(method: Method, state: State, clients: Sequence[int], profile: Profile) -> list[Memory]:
    """What each client is sent; clients that are sent the same share one object."""
    models = [group.weights for group in state.groups]
    common = [
        {**travelling(group.weights, profile)._asdict(), **broadcast(method, group)} for group in state.groups
    ]
    downs = [common[int(state.grouping["group"][client])] for client in clients]
    grouping = method.grouping
    if not isinstance(grouping, Tailors):
        return downs
    return [
        {**down, **grouping.tailor(state.grouping, client, models)}
        for client, down in zip(clients, downs, strict=True)
    ]


def broadcast(method: Method, group: Group) -> Memory:
    """What a group's clients are sent beside its model."""
    optimiser = method.server_optimiser
    return optimiser.broadcast(group.known("optimiser")) if isinstance(optimiser, Broadcasts) else {}


class Had(NamedTuple):
    """Who was sent what earlier in a round, and holds it still."""

    model: frozenset[int] = frozenset()  # the model of its group
    extras: frozenset[int] = frozenset()  # what is sent beside it


def round_bytes(
    method: Method,
    state: State,
    now: Round,
    polled: Ids,
    surveyed: Ids,
    answers: Sequence[Answer],
    crossed: Sequence[int],
    had: Had,
    quotas: Sequence[Tensor] = (),
) -> tuple[int, int]:
    """Up and down in this round, from the tensors that were sent, beyond what clients ``had``.

    Those ``surveyed`` hold every group's model, those ``polled`` their own; nobody is sent a model twice.
    """
    if method.silent:
        return 0, 0
    weights = travelling(state.groups[0].weights, now.profile)
    model = bytes_of(fields_of(model_records([weights])))
    selected = set(now.selected.tolist())
    own = (selected | set(polled.tolist())) - had.model
    models = dict.fromkeys(own, 1) | dict.fromkeys(surveyed.tolist(), len(state.groups))
    extra = _order_bytes(broadcast(method, state.groups[0]))
    down = model * sum(models.values()) + extra * len(selected - had.extras)
    if selected:
        message = messages(method, state, now.selected[:1].tolist(), now.profile)[0]
        down += (_order_bytes(message) - model - extra) * len(selected)
        down += sum(_order_bytes({}, quota) for quota in quotas)
    up = bytes_of(poll_fields()) * len(polled) + _answer_bytes(method, now, answers)
    if "cross_accuracy" in method.uses:  # each new model goes to every other client of its cohort
        up += sum(bytes_of(cross_fields(count)) * count for count in crossed)
        down += sum(model * count * (count - 1) for count in crossed)
    return up, down


def _answer_bytes(method: Method, now: Round, answers: Sequence[Answer]) -> int:
    """Of what clients told of their training, and of the updates of those who were not declined."""
    declined, classes = set(now.declined.tolist()), now.profile.num_classes
    beside = Counter(answer.steps for answer in answers)
    told = sum(bytes_of(training_fields(method, classes, steps)) * many for steps, many in beside.items())
    sent = [answer for answer in answers if answer.up and answer.client not in declined]
    if not sent:
        return told
    # That of one is as large as that of another.
    update = record(method.transforms, sent[0].up, sent[0].buffers)
    return told + len(sent) * bytes_of(update_fields(update))


def _order_bytes(down: Memory, quota: Tensor | None = None) -> int:
    return bytes_of(fields_of(order_records(down, quota)))
