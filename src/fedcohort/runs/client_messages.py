"""What leaves a client in a deployment, in words: every answer that a method can ask of it, and the bytes of
each.

What an answer holds is written down in :mod:`fedcohort.core.schema`; the test suite compares it, byte by
byte, with the answers that clients give. Beside what is listed an answer holds no tensor and no number.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import torch

from fedcohort.core import schema
from fedcohort.core.batchnorm import travelling
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy, Profile
from fedcohort.core.records import Memory, Trained, View
from fedcohort.core.roles.optional import Asks, Tailors
from fedcohort.core.round.groups import first_group
from fedcohort.core.round.messages import broadcast
from fedcohort.core.schema import Fields, asked
from fedcohort.core.uploads import encoded
from fedcohort.models import flat_model
from fedcohort.models.flat import Weights

REFERENCE = "MLP 784-200-200-10, ten classes, two local steps"


class Leaving(NamedTuple):
    """One kind of answer of one client."""

    message: str
    when: str
    what: str
    bytes: int


def leaving(method: Method, profile: Profile, privacy: Privacy, steps: int, cohort: int) -> list[Leaving]:
    """The answers that this method asks for; ``steps`` are those of a round, ``cohort`` clients train."""
    fields, told = answers(method, profile, privacy, steps, cohort), method.privacy(privacy)
    return [
        Leaving(message, WHEN[message], _words(message, method, own, told), schema.bytes_of(own))
        for message, own in fields.items()
    ]


def answers(method: Method, profile: Profile, privacy: Privacy, steps: int, cohort: int) -> dict[str, Fields]:
    """The fields of each of them."""
    exact = method.privacy(privacy).counts == "exact"
    classes, at_once = profile.num_classes, not (method.silent or schema.is_judged(method))
    sent = schema.fields_of("update", update(method, profile))
    each = {
        "profile": lambda: schema.profile_fields(method, profile),
        "poll": schema.poll_fields,
        "survey": lambda: _survey(method, profile),
        "training": lambda: (*schema.training_fields(method, classes, steps), *(sent if at_once else ())),
        "update": lambda: sent,
        "cross": lambda: schema.cross_fields(cohort),
        "memory": lambda: schema.fields_of("memory", method.objective.init_client(profile)),
        "evaluation": lambda: schema.evaluation_fields(method, classes, exact),
    }
    return {message: each[message]() for message in asked(method)}


def reference(method: Method) -> list[Leaving]:
    """For the model of the documentation's tables, with label counts told as they are."""
    profile = _reference_profile()
    x, y = torch.zeros(0, *profile.shape), torch.zeros(0, dtype=torch.long)
    tables = {part.name: part.summarise(x, y, profile.num_classes)[None] for part in method.summarising}
    return leaving(method, replace(profile, summaries=tables), Privacy(), steps=2, cohort=10)


@cache
def _reference_profile() -> Profile:
    size = torch.full((10,), 60)
    counts = torch.full((10, 10), 6.0, dtype=torch.float64)
    return Profile(size, size, counts, 10, flat_model("mlp", (784,), 10), Local(), 0, shape=(784,))


def update(method: Method, profile: Profile) -> Memory:
    """What a client that did not move would send up, as it travels."""
    objective, at = method.objective, profile.model.init(profile.seed)
    down = {**at._asdict(), **broadcast(method, first_group(method, at, profile))}
    if isinstance(method.grouping, Tailors):
        groups = method.grouping.init_grouping(profile)
        down |= method.grouping.tailor(groups, 0, method.grouping.init_models(groups, profile))
    counts = torch.zeros(profile.num_classes, dtype=torch.long)
    view = View(down, objective.init_client(profile), counts, 1, 1.0, 1)
    up, _ = objective.finish(at, still(at), view)
    return {**encoded(method.transforms, up), "buffers": travelling(at, profile).buffers}


def still(at: Weights) -> Trained:
    """One step that changed nothing."""
    return Trained(at, torch.zeros(1), 1, 1.0, torch.zeros_like)


def _survey(method: Method, profile: Profile) -> Fields:
    grouping = method.grouping
    assert isinstance(grouping, Asks)  # noqa: S101  # or no survey would be asked for
    models = method.grouping.init_models(method.grouping.init_grouping(profile), profile)
    return schema.survey_fields(grouping, len(models))


WHEN = {
    "profile": "once",
    "poll": "before a round, who may be chosen",
    "survey": "when groups are formed or evaluated",
    "training": "a round, who was chosen",
    "update": "a round, who was chosen and judged worth it",
    "cross": "after a round, who was chosen",
    "memory": "when groups change",
    "evaluation": "when the model is evaluated, everybody",
}

# What a field is called, by message, record and name; what a method names itself is called by that name.
WORDS = {
    ("profile", "", "sizes"): "how many samples it has of each kind",
    ("profile", "", "shape"): "the shape of an example",
    ("profile", "", "vocabulary"): "how many tokens it knows",
    ("profile", "counts", "counts"): "label counts{noise}",
    ("profile", "moments", "number"): "how many numbers each column has",
    ("profile", "moments", "mean"): "their mean",
    ("profile", "moments", "spread"): "their spread, for data.scale = 'federated'",
    ("poll", "", "loss"): "the model's loss on training data",
    ("survey", "answer", "answer"): "which of all groups' models fits its training data",
    ("training", "", "steps"): "steps",
    ("training", "", "size"): "samples",
    ("training", "trace", "trace"): "{loss}",
    ("training", "probes", "loss_before"): "the sent model's loss",
    ("training", "probes", "outputs"): "mean class probabilities",
    ("cross", "accuracy", "accuracy"): "the accuracy of each cohort member's model on validation data",
    ("evaluation", "", "size"): "test samples",
    ("evaluation", "", "right"): "correct answers",
    ("evaluation", "", "loss"): "their loss",
    ("evaluation", "", "train_loss"): "the model's loss on training data, instead of the next poll",
    ("evaluation", "by_class", "size"): "test samples of each class",
    ("evaluation", "by_class", "right"): "correct answers of each class",
}


def _words(message: str, method: Method, fields: Fields, privacy: Privacy) -> str:
    noise = f" with Laplace noise of epsilon {privacy.epsilon:g}" if privacy.counts == "noised" else ""
    loss = "every step's loss" if "trace" in method.uses else "mean loss"
    words = ["its name, its classes' names"] if message == "profile" else []
    for field in fields:
        if field.record == "summaries":
            told = f"the summary that {field.name} asks for{noise}"
        elif field.record in ("update", "memory"):
            told = f"{field.name} ({field.bytes:,} bytes)" if field.bytes else ""
        else:
            told = WORDS[message, field.record, field.name].format(noise=noise, loss=loss)
        words.append(told)
    return ", ".join(filter(None, words))
