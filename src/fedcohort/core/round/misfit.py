"""Whether a state could have come from a run: one that was read from a file may be anybody's."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from fedcohort.core import client_store, uploads
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Shapes, shapes_of
from fedcohort.core.round.groups import first_group
from fedcohort.core.round.merge import merged_model, plan_of
from fedcohort.core.state import State
from fedcohort.core.task import Task
from fedcohort.models.flat import Flat, Weights


def misfit(state: State, method: Method, task: Task) -> str:
    """The first thing that looks like nothing in a run of ``method``, or nothing. Names, shapes and kinds of
    numbers are compared with those before the first round, which no round changes."""
    profile = task.profile(method)
    if state.encoders:  # its models are merged: what is trained on top is another one
        if plan_of(method.grouping, state.round) is None or not _all_like(task.model, state.encoders):
            return "a merged model"
        profile = replace(profile, model=merged_model(task, len(state.encoders)))
    if not _serves_everybody(state, profile):
        return "who belongs to which group"
    if not _all_like(profile.model, [group.weights for group in state.groups]):
        return "a model"
    if shapes_of(state.grouping) != shapes_of(method.grouping.init_grouping(profile)):
        return "what the grouping remembers"
    if not _server_fits(state, method, profile):
        return "what the server remembers"
    return "" if _clients_fit(state, method, profile) else "what a client remembers"


def _serves_everybody(state: State, profile: Profile) -> bool:
    serves = state.grouping.get("group", torch.zeros(0))
    if serves.dtype != torch.int64 or serves.shape != (profile.num_clients,):
        return False
    return bool(((serves >= 0) & (serves < len(state.groups))).all())


def _all_like(model: Flat, models: Iterable[Weights]) -> bool:
    like = {"params": ((model.num_params,), torch.float32), "buffers": ((model.num_buffers,), torch.float32)}
    return all(shapes_of(weights._asdict()) == like for weights in models)


def _server_fits(state: State, method: Method, profile: Profile) -> bool:
    first = first_group(method, state.groups[0].weights, profile)
    selector, server = shapes_of(first.selector), _places(first.server)
    return all(
        shapes_of(group.selector) == selector and _places(group.server) == server for group in state.groups
    )


def _places(server: Mapping[str, Memory]) -> dict[str, Shapes]:
    """Of parts that remember anything."""
    return {place: shapes_of(memory) for place, memory in server.items() if memory}


def _clients_fit(state: State, method: Method, profile: Profile) -> bool:
    blank = shapes_of(uploads.blank(method, profile))
    known = all(0 <= client < profile.num_clients for client in state.clients)
    return known and all(shapes == blank for shapes in client_store.all_shapes(state.clients))
