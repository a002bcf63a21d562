"""What a client of a deployment receives and what leaves it, in words: every question of a method and every
answer, and the bytes of each.

What they hold is written down in :mod:`fedcohort.core.schema`; the test suite compares it, byte by byte, with
the messages that Flower carries. Beside what is listed a message holds no tensor and an answer no number.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple, cast

import torch

from fedcohort.core import schema, uploads
from fedcohort.core.batchnorm import travelling
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy, Profile
from fedcohort.core.roles.optional import Asks, Merges, Rations
from fedcohort.core.round.groups import begun
from fedcohort.core.round.messages import messages as sent_down
from fedcohort.core.schema import Field, Fields
from fedcohort.models import flat_model
from fedcohort.models.flat import Weights
from fedcohort.models.last_layer import encoder

REFERENCE = "MLP 784-200-200-10, ten classes, two local steps"


class Exchanged(NamedTuple):
    """One kind of question to one client, or of its answer."""

    message: str
    when: str
    what: str
    bytes: int


def leaving(method: Method, profile: Profile, privacy: Privacy, steps: int, cohort: int) -> list[Exchanged]:
    """The answers that this method asks for; ``steps`` are those of a round, ``cohort`` clients train."""
    return [
        Exchanged(message, WHEN[message], _content(message, own), schema.bytes_of(own))
        for message, own in answers(method, profile, privacy, steps, cohort).items()
    ]


def answers(method: Method, profile: Profile, privacy: Privacy, steps: int, cohort: int) -> dict[str, Fields]:
    """The fields of each of them."""
    told = method.privacy(privacy)
    classes, at_once = profile.num_classes, not (method.silent or schema.is_judged(method))
    grouping, state = method.grouping, begun(method, profile)
    down = sent_down(method, state, [0], profile)[0]
    mine = uploads.blank(method, profile)
    sent = schema.update_fields(uploads.unmoved(method.objective, method.transforms, down, mine))
    each = {
        "profile": lambda: schema.profile_fields(method, profile, told),
        "poll": schema.poll_fields,
        "survey": lambda: schema.survey_fields(cast(Asks, grouping).answer, len(state.groups)),
        "training": lambda: (*schema.training_fields(method, classes, steps), *(sent if at_once else ())),
        "update": lambda: sent,
        "cross": lambda: schema.cross_fields(cohort),
        "memory": lambda: schema.memory_fields(method.objective.init_client(profile)),
        "evaluation": lambda: schema.evaluation_fields(method, classes, told.counts == "exact"),
    }
    return {message: each[message]() for message in schema.answers_of(method)}


def receiving(method: Method, profile: Profile, cohort: int) -> list[Exchanged]:
    """What a client is sent with each of these questions, at most: nobody is sent a model that it holds."""
    fields = orders(method, profile, cohort)
    return [
        Exchanged(message, WHEN[message], _received(message, own), schema.bytes_of(own))
        for message, own in fields.items()
    ]


def orders(method: Method, profile: Profile, cohort: int) -> dict[str, Fields]:
    """The fields of each of them."""
    state = begun(method, profile)
    model = travelling(state.groups[0].weights, profile)
    quota = torch.zeros(profile.num_classes) if isinstance(method.selector, Rations) else None
    order = {} if method.silent else sent_down(method, state, [0], profile)[0]
    each = {
        "poll": schema.model_records([model]),
        "survey": schema.model_records([model] * len(state.groups)),
        "training": schema.order_records(order, quota),
        "cross": schema.model_records([model] * cohort),
        "evaluation": schema.model_records([model]),  # also where clients keep their own: until they have one
    }
    if isinstance(method.grouping, Merges):
        cut = [encoder(profile.model, model)] * len(state.groups)
        each["merge"] = schema.model_records(cut, "encoder")
    wanted = [*schema.answers_of(method), *(["merge"] if "merge" in each else [])]
    return {message: schema.fields_of(each.get(message, {})) for message in wanted}


def reference(method: Method) -> tuple[list[Exchanged], list[Exchanged]]:
    """What leaves and what is received, for the model of the documentation's tables, with label counts told
    as they are."""
    profile = _reference_profile()
    x, y = torch.zeros(0, *profile.shape), torch.zeros(0, dtype=torch.long)
    tables = {part.name: part.summarise(x, y, profile.num_classes)[None] for part in method.summarising}
    profile = replace(profile, summaries=tables)
    return leaving(method, profile, Privacy(), steps=2, cohort=10), receiving(method, profile, cohort=10)


@cache
def _reference_profile() -> Profile:
    size = torch.full((10,), 60)
    counts = torch.full((10, 10), 6.0, dtype=torch.float64)
    return Profile(size, size, counts, 10, flat_model("mlp", (784,), 10), Local(), 0, shape=(784,))


WHEN = {
    "profile": "once",
    "poll": "before a round, who may be chosen",
    "survey": "when groups are formed or evaluated",
    "training": "a round, who was chosen",
    "update": "a round, who was chosen and judged worth it",
    "cross": "after a round, who was chosen",
    "memory": "when groups change, who has trained",
    "evaluation": "when the model is evaluated, everybody",
    "merge": "once, when models are merged, everybody",
}


def _content(message: str, fields: Fields) -> str:
    words = ["its name, its classes' names"] if message == "profile" else []
    return ", ".join([*words, *(field.words or _named(field) for field in fields if field.bytes)])


def _received(message: str, fields: Fields) -> str:
    """Models by their number, what a method sends beside one by its name, and what is said of it."""
    models = {field.record for field in fields if field.name == "params"}
    words = ["the model" if len(models) == 1 else f"{len(models)} models"] if models else []
    words += ["without the last layer"] if message == "merge" else []
    words += [_named(field) for field in fields if field.name not in Weights._fields]
    return ", ".join([*words, *schema.INSTRUCTIONS.get(message, {}).values()]) or "nothing but the question"


def _named(field: Field) -> str:
    return f"{field.name} ({field.bytes:,} bytes)"
