"""What clients tell the server: every message of a method, number by number.

The bytes in results, the list of what leaves a client, what ``fedcohort methods`` says and the names, shapes
and kinds by which a deployment knows an answer all follow from the fields that are written down here.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory
from fedcohort.core.roles import Transform
from fedcohort.core.roles.optional import Asks, Broadcasts, Judges
from fedcohort.core.uploads import encoded


class Field(NamedTuple):
    """Numbers of one kind in a message."""

    record: str  # the named tensors among which it travels; FACTS: by itself
    name: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


Fields = tuple[Field, ...]
FACTS = ""  # numbers by themselves, each of eight bytes


def bytes_of(fields: Iterable[Field]) -> int:
    return sum(field.bytes for field in fields)


def fields_of(record: str, memory: Mapping[str, Any]) -> Fields:
    """Of these tensors."""
    return tuple(Field(record, key, tuple(value.shape), value.dtype) for key, value in memory.items())


def asked(method: Method) -> list[str]:
    """The messages that this method wants from clients, and no others."""
    optimiser = method.server_optimiser
    inherits = isinstance(optimiser, Broadcasts) and optimiser.has_own("inherit")
    surveys = isinstance(method.grouping, Asks) and method.grouping.may_ask
    regroups = surveys or method.grouping.has_own("assign") or method.grouping.has_own("regroup")
    when = {
        "profile": True,
        "poll": "losses" in method.uses,
        "survey": surveys,
        "training": True,
        "update": is_judged(method),
        "cross": "cross_accuracy" in method.uses,
        "memory": inherits and regroups and method.objective.has_own("init_client"),
        "evaluation": True,
    }
    return [message for message, needed in when.items() if needed]


def is_judged(method: Method) -> bool:
    """Whether updates are sent only once the server has said whose it wants."""
    return isinstance(method.selector, Judges) and not method.silent


def profile_fields(method: Method, profile: Profile) -> Fields:
    """Once, before training: what a client has, and of its labels what the method uses and privacy allows."""
    whole, exact = torch.int64, torch.float64
    fields = [
        Field(FACTS, "sizes", (3,), whole),
        Field(FACTS, "shape", (len(profile.shape),), whole),
        Field(FACTS, "vocabulary", (), whole),
    ]
    if "counts" in method.uses and profile.counts is not None:
        fields.append(Field("counts", "counts", (profile.num_classes,), exact))
    for name, tables in profile.summaries.items():
        fields.append(Field("summaries", name, tuple(tables.shape[1:]), exact))
    return (*fields, *moment_fields(profile))


def moment_fields(profile: Profile) -> Fields:
    """For one scale of all clients: of each column how many numbers it has, their mean and their spread."""
    names = ("number", "mean", "spread") if profile.scaled else ()
    return tuple(Field("moments", name, tuple(profile.shape[:1]), torch.float64) for name in names)


def poll_fields() -> Fields:
    """Before a round: the loss of a model."""
    return (Field(FACTS, "loss", (), torch.float64),)


def survey_fields(grouping: Asks, models: int) -> Fields:
    """What a grouping asks about all of so many models."""
    return fields_of("answer", {"answer": grouping.answer(torch.zeros(models, 1))})


def training_fields(
    method: Method, classes: int, steps: int, probes: Collection[str] | None = None
) -> Fields:
    """Beside the update of so many local steps, with these ``probes`` or all that the method uses. How far
    the steps could reach, the server computes itself."""
    fields = [
        Field(FACTS, "steps", (), torch.int64),
        Field(FACTS, "size", (), torch.int64),
        Field("trace", "trace", (steps if "trace" in method.uses else min(1, steps),)),  # or their mean
    ]
    shapes: dict[str, tuple[int, ...]] = {"loss_before": (), "outputs": (classes,)}
    asked = method.uses if probes is None else probes
    return (*fields, *(Field("probes", name, shapes[name]) for name in shapes if name in asked))


def update_fields(transforms: Sequence[Transform], up: Memory, buffers: Tensor) -> Fields:
    """An update as it travels: what the objective sends, as all transforms write it, and BatchNorm
    statistics."""
    return fields_of("update", {**encoded(transforms, up), "buffers": buffers})


def cross_fields(models: int) -> Fields:
    """The accuracy of others' models."""
    return (Field("accuracy", "accuracy", (models,)),)


def evaluation_fields(method: Method, classes: int, exact: bool) -> Fields:
    """How the model that serves a client does; ``exact``: class by class."""
    fields = [Field(FACTS, "size", (), torch.int64), Field(FACTS, "right", (), torch.int64)]
    fields.append(Field(FACTS, "loss", (), torch.float64))
    if "losses" in method.uses:  # instead of the next poll
        fields.append(Field(FACTS, "train_loss", (), torch.float64))
    return (*fields, *(by_class_fields(classes) if exact else ()))


def by_class_fields(classes: int) -> Fields:
    """Test samples and correct answers of each class."""
    return tuple(Field("by_class", name, (classes,), torch.int64) for name in ("size", "right"))
