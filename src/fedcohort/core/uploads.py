"""A client's update on its way to the server, through a method's transforms.

What a transform remembers at a client is among what the client remembers, under the number of its place.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcohort.core import batchnorm
from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Trained, View
from fedcohort.core.roles import Objective, Transform
from fedcohort.models.flat import Weights


def blank(method: Method, profile: Profile) -> Memory:
    """What a client that never trained remembers: for its objective, its statistics and all transforms."""
    mine = batchnorm.blank(method.objective, profile)
    for place, transform in zip(method.transform_places, method.transforms, strict=True):
        own = transform.init_client(profile)
        mine = {**mine, **{f"{place}/{key}": value for key, value in own.items()}}
    return mine


def transformed(
    transforms: Sequence[Transform], up: Memory, mine: Memory, view: View
) -> tuple[Memory, Memory]:
    """What goes up, and what the client remembers, once all transforms have seen what its objective sends:
    as the server will read it, so that a simulation loses what writing it shorter loses."""
    for number, transform in enumerate(transforms):
        at = f"transform{number}/"
        own = {key.removeprefix(at): value for key, value in view.mine.items() if key.startswith(at)}
        delta, own = transform.upload(up["delta"], own, view)
        up, mine = {**up, "delta": delta}, {**mine, **{at + key: value for key, value in own.items()}}
    if any(transform.has_own("encode") for transform in transforms):
        up = decoded(transforms, encoded(transforms, up), len(up["delta"]))
    return up, mine


def encoded(transforms: Sequence[Transform], update: Memory) -> Memory:
    """As it travels."""
    for transform in transforms:
        update = transform.encode(update)
    return update


def record(transforms: Sequence[Transform], up: Memory, buffers: Tensor) -> Memory:
    """An update as it travels: what the objective sends, as all transforms write it, and BatchNorm
    statistics."""
    return {**encoded(transforms, up), "buffers": buffers}


def unmoved(objective: Objective, transforms: Sequence[Transform], down: Memory, mine: Memory) -> Memory:
    """The same of a client that was sent ``down``, remembers ``mine`` and did not move: what anybody's looks
    like."""
    at = Weights(down["params"], down["buffers"])
    still = Trained(at, torch.zeros(1), 1, 1.0, torch.zeros_like)
    up, _ = objective.finish(at, still, View(down, mine, torch.ones(1), 1, 1.0, 1))
    return record(transforms, up, at.buffers)


def decoded(transforms: Sequence[Transform], update: Memory, params: int) -> Memory:
    """The inverse; ValueError for what no client sends that does as it should."""
    for transform in reversed(transforms):
        update = transform.decode(update, params)
    return update
