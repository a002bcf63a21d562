"""Several models become one: their encoders are frozen side by side, and one linear layer reads them all.

An encoder is a network without its last linear layer. Frozen, it turns an example into the same features for
ever, so what follows is an ordinary task: the examples are features and the model is that layer. Engines,
selectors, objectives and evaluation need not know, and only the layer travels.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fedcohort.core import client_store
from fedcohort.core.engine import Engine
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Merge
from fedcohort.core.roles import Grouping
from fedcohort.core.roles.optional import Merges
from fedcohort.core.round.groups import first_group
from fedcohort.core.schema import bytes_of, fields_of, model_records
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.models import flat_model
from fedcohort.models.flat import Flat, Weights
from fedcohort.models.last_layer import encoder, last_layer

NEVER = 10**9  # no run has so many rounds


@torch.no_grad()
def features(model: Flat, weights: Weights, x: Tensor) -> Tensor:
    """``[n, F]``: what the last layer sees, as in evaluation."""
    _, layer = last_layer(model)
    seen: list[Tensor] = []
    watch = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        model.answers(weights, x)
    finally:
        watch.remove()
    return torch.cat(seen)


def merged_model(task: Task, encoders: int) -> Flat:
    """The layer that reads the features of this many encoders."""
    _, layer = last_layer(task.model)
    return flat_model("logistic", (encoders * layer.in_features,), task.federation.num_classes)


def merged_task(task: Task, encoders: Sequence[Weights], plan: Merge, elsewhere: bool = False) -> Task:
    """The task of training one linear layer on all encoders' features; ``elsewhere``: nobody here needs
    them."""
    width = len(encoders) * last_layer(task.model)[1].in_features

    def encode(x: Tensor) -> Tensor:
        if elsewhere or not len(x):
            return torch.zeros(0, width)
        return torch.cat([features(task.model, each, x) for each in encoders], 1)

    model, local = merged_model(task, len(encoders)), replace(task.local, steps=plan.steps, augment=None)
    return replace(task, federation=task.federation.encoded(encode, width), model=model, local=local)


def side_by_side(model: Flat, encoders: Sequence[Weights]) -> Weights:
    """The layer that adds up the logits of all models: their last layers in a row, their biases summed."""
    name, layer = last_layer(model)
    layers = [model.module_with(weights).get_submodule(name) for weights in encoders]
    biases = [own.bias for own in layers if own.bias is not None]
    bias = torch.stack(biases).sum(0) if biases else torch.zeros(layer.out_features)  # type: ignore[arg-type]
    weight = torch.cat([own.weight for own in layers], 1)  # type: ignore[misc]
    return Weights(torch.cat([weight.reshape(-1), bias]).detach(), torch.zeros(0))


def present(method: Method, state: State, task: Task, engine: Engine) -> tuple[Task, Engine]:
    """What a state is trained and evaluated with: once its models are merged, the merged task."""
    plan = plan_of(method.grouping, state.round) if state.encoders else None
    if plan is None:
        return task, engine
    engine = engine.merged(state.encoders, plan)
    return replace(engine.task, began=merging_round(method.grouping)), engine


def plan_of(grouping: Grouping, number: int) -> Merge | None:
    """How round ``number`` trains on top of merged models, if it does."""
    return grouping.merges(number) if isinstance(grouping, Merges) else None


def merging_round(grouping: Grouping) -> int:
    """The first round that trains on top of merged models; for ever late if none does."""
    return bisect_left(range(NEVER), True, key=lambda number: plan_of(grouping, number) is not None)


def too_short(grouping: Grouping, rounds: int) -> str:
    """What is to be said of a run of this many rounds, if it ends before its models are merged."""
    if not isinstance(grouping, Merges) or rounds > (first := merging_round(grouping)):
        return ""
    return (
        f"{grouping.name} merges its groups' models after {first} rounds, and {rounds} are too few: what is "
        f"measured are the groups' models, not {grouping.name}'s; raise rounds, or let it merge sooner"
    )


def merge(method: Method, state: State, task: Task, profile: Profile) -> State:
    """The state, merged when this is the round for it. Everybody who trains gets all encoders."""
    plan = plan_of(method.grouping, state.round)
    if plan is None or state.encoders:
        return state
    encoders = tuple(group.weights for group in state.groups)
    records = model_records([encoder(task.model, weights) for weights in encoders], "encoder")
    sent = len(profile.eligible) * bytes_of(fields_of(records))
    head = merged_model(task, len(encoders))
    model = side_by_side(task.model, encoders) if plan.joined else head.init(task.seed)
    group = first_group(method, model, replace(profile, model=head))
    return replace(
        state,
        groups=(group,),
        grouping={**state.grouping, "group": torch.zeros_like(state.grouping["group"])},
        clients=client_store.emptied(state.clients),  # what they remembered was about another model
        bytes_down=state.bytes_down + sent,
        encoders=encoders,
    )
