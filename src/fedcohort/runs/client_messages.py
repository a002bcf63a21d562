"""What leaves a client in a deployment: every answer that a method can ask of it, and the bytes of each.

The list is made of what the parts declare; the test suite compares it, byte by byte, with the answers that
clients give. Beside what is listed an answer holds no tensor and no number.
"""

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.batchnorm import travelling
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy, Profile
from fedcohort.core.records import Memory, Trained, View
from fedcohort.core.roles import Grouping
from fedcohort.models import flat_model
from fedcohort.models.flat import Weights

NUMBER = 8  # bytes of a number that is sent by itself
REFERENCE = "MLP 784-200-200-10, ten classes, two local steps"


class Leaving(NamedTuple):
    """One kind of answer of one client."""

    message: str
    when: str
    what: str
    bytes: int


def leaving(method: Method, profile: Profile, privacy: Privacy, steps: int, cohort: int) -> list[Leaving]:
    """The answers that this method asks for; ``steps`` are those of a round, ``cohort`` clients train."""
    privacy = method.privacy(privacy)
    each = {
        "profile": lambda: _profile(method, profile, privacy),
        "poll": _poll,
        "survey": lambda: _survey(method, profile),
        "training": lambda: _training(method, profile, steps),
        "update": lambda: _update(method, profile),
        "cross": lambda: _cross(cohort),
        "memory": lambda: _memory(method, profile),
        "evaluation": lambda: _score(method, profile, privacy),
    }
    return [each[message]() for message in asked(method)]


def asked(method: Method) -> list[str]:
    """The kinds of answers that this method asks of clients, and no others."""
    when = {
        "profile": True,
        "poll": "losses" in method.uses,
        "survey": method.grouping.has_own("asks"),
        "training": True,
        "update": _is_judged(method),
        "cross": "cross_accuracy" in method.uses,
        "memory": method.aggregator.has_own("inherit") and method.objective.has_own("init_client"),
        "evaluation": True,
    }
    return [message for message, needed in when.items() if needed]


def reference(method: Method) -> list[Leaving]:
    """For the model of the documentation's tables, with label counts told as they are."""
    return leaving(method, _reference_profile(), Privacy(), steps=2, cohort=10)


@cache
def _reference_profile() -> Profile:
    size = torch.full((10,), 60)
    counts = torch.full((10, 10), 6.0, dtype=torch.float64)
    return Profile(size, size, counts, 10, flat_model("mlp", (784,), 10), Local(), 0, shape=(784,))


def _profile(method: Method, profile: Profile, privacy: Privacy) -> Leaving:
    words = ["its name, its classes' names, the shape of an example, how many samples it has of each kind"]
    told, reveals = 5 * NUMBER, privacy.counts != "withheld"
    noise = f" with Laplace noise of epsilon {privacy.epsilon:g}" if privacy.counts == "noised" else ""
    if "counts" in method.uses and reveals:
        words.append(f"label counts{noise}")
        told += 8 * profile.num_classes
    for part in (part for part in method.parts if "summary" in part.uses() and reveals):
        x, y = torch.zeros(1, *profile.shape), torch.zeros(1, dtype=torch.long)
        words.append(f"the summary that {part.name} asks for{noise}")
        told += 8 * part.summarise(x, y, profile.num_classes).numel()
    if profile.moments:
        words.append("how many numbers each column has, their mean and spread, for data.scale = 'federated'")
        told += 8 * profile.moments
    return Leaving("profile", "once", "; ".join(words), told)


def _poll() -> Leaving:
    return Leaving("poll", "before a round, who may be chosen", "the model's loss on training data", NUMBER)


def _survey(method: Method, profile: Profile) -> Leaving:
    grouping = method.grouping
    models = grouping.init_models(grouping.init_grouping(profile), profile)
    answer = grouping.answer(torch.zeros(len(models), 1))
    words = "which of all groups' models fits its training data"
    return Leaving("survey", "when groups are formed or evaluated", words, _bytes(answer))


def _is_judged(method: Method) -> bool:
    """Whether updates are sent only once the server has said whose it wants."""
    return method.selector.has_own("judge") and not method.silent


def _training(method: Method, profile: Profile, steps: int) -> Leaving:
    """What goes with the update, and the update, unless that is judged first."""
    loss = "every step's loss" if "trace" in method.uses else "mean loss"
    words = [f"steps, their reach, samples, {loss}"]
    beside = 3 * NUMBER + 4 * (steps if "trace" in method.uses else 1)
    if "loss_before" in method.uses:
        words.append("the sent model's loss")
        beside += 4
    if "outputs" in method.uses:
        words.append("mean class probabilities")
        beside += 4 * profile.num_classes
    if not method.silent and not _is_judged(method):
        sent = _update(method, profile)
        words.append(sent.what)
        beside += sent.bytes
    return Leaving("training", "a round, who was chosen", "; ".join(words), beside)


def _update(method: Method, profile: Profile) -> Leaving:
    up = update(method, profile)
    names = ", ".join(f"{name} ({_bytes(value):,} bytes)" for name, value in up.items() if value.numel())
    size = sum(_bytes(value) for value in up.values())
    return Leaving("update", "a round, who was chosen and judged worth it", names, size)


def update(method: Method, profile: Profile) -> Memory:
    """What a client that did not move would send up."""
    objective, at = method.objective, profile.model.init(profile.seed)
    extras = method.aggregator.broadcast(method.aggregator.init_aggregator(profile))
    down = {**at._asdict(), **extras, **_tailored(method.grouping, profile)}
    counts = torch.zeros(profile.num_classes, dtype=torch.long)
    view = View(down, objective.init_client(profile), counts, 1, 1.0, 1)
    up, _ = objective.finish(at, still(at), view)
    return {**up, "buffers": travelling(at, profile).buffers}


def _tailored(grouping: Grouping, profile: Profile) -> Memory:
    """What a client is sent beside or instead of its group's model."""
    if not grouping.has_own("tailor"):
        return {}
    groups = grouping.init_grouping(profile)
    return grouping.tailor(groups, 0, grouping.init_models(groups, profile))


def still(at: Weights) -> Trained:
    """One step that changed nothing."""
    return Trained(at, torch.zeros(1), 1, 1.0, torch.zeros_like)


def _cross(cohort: int) -> Leaving:
    words = "the accuracy of each cohort member's model on validation data"
    return Leaving("cross", "after a round, who was chosen", words, 4 * cohort)


def _memory(method: Method, profile: Profile) -> Leaving:
    mine = method.objective.init_client(profile)
    words = "what it remembers: " + ", ".join(mine)
    return Leaving("memory", "when groups change", words, sum(_bytes(value) for value in mine.values()))


def _score(method: Method, profile: Profile, privacy: Privacy) -> Leaving:
    words, told = ["correct answers, samples and loss on test data"], 3 * NUMBER
    if "losses" in method.uses:
        words.append("the model's loss on training data, instead of the next poll")
        told += NUMBER
    if privacy.counts == "exact":
        words.append("correct answers and samples of each class")
        told += 16 * profile.num_classes
    return Leaving("evaluation", "when the model is evaluated, everybody", "; ".join(words), told)


def _bytes(value: Tensor) -> int:
    return value.numel() * value.element_size()
