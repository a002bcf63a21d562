"""What the server sends to clients: records of tensors, and facts that say what to do with them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory
from fedcohort.core.schema.field import FACTS, Field, Fields
from fedcohort.models.flat import Weights

# What a message says in words and numbers: a few hundred bytes of text, which are not counted.
EVERY = {  # whatever it asks for
    "run": "the experiment's settings",
    "token": "the run's token",
    "client": "its number in the run",
    "classes": "everybody's classes",
    "scale": "the scale of columns",
    "merge": "how models were merged, if they were",
}
ROUND = {"number": "the number of the round"}
VERSION = {"version": "which version of its memory counts"}
STATISTICS = {"statistics": "whether its own BatchNorm statistics count"}
ADAPTATION = ("number", "version", "budget")  # of what says how to train, that count for a client alone
INSTRUCTIONS: dict[str, dict[str, str]] = {
    "profile": {},
    "poll": {**ROUND, **STATISTICS, "samples": "on how many samples"},
    "survey": STATISTICS,
    "training": {
        **ROUND,
        **VERSION,
        "keep": "which other version it keeps",
        "budget": "the local budget",
        "probes": "what to tell beside the update",
        "judged": "whether to wait with the update",
    },
    "update": ROUND,
    "cross": STATISTICS,
    "memory": VERSION,
    "evaluation": {
        **VERSION,
        **STATISTICS,
        "on": "on which samples",
        "adapt": "how to train the model further first, for itself, if the method does",
        "poll": "whether to tell the loss on training data",
        "order": "what to train next, if that is known",
    },
}


def order_records(down: Memory, quota: Tensor | None = None) -> dict[str, Memory]:
    """What to train on: the model, and what a method sends beside it; of how many samples of each class."""
    return {"down": down, **({} if quota is None else {"quota": {"quota": quota.long()}})}


def model_records(models: Sequence[Weights], kind: str = "model") -> dict[str, Memory]:
    """Models to try; of ``kind`` "encoder": to keep, once models are merged."""
    return {f"{kind}/{number}": weights._asdict() for number, weights in enumerate(models)}


def scale_fields(profile: Profile) -> Fields:
    """The mean and the deviation of everybody's columns, where these are scaled by them."""
    names = ("mean", "std") if profile.scaled else ()
    return tuple(Field(FACTS, name, tuple(profile.shape[:1]), torch.float64) for name in names)
