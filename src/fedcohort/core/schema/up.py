"""What clients tell the server: every message of a method, number by number."""

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy, Profile
from fedcohort.core.records import Memory
from fedcohort.core.roles.optional import Asks, Broadcasts, Judges
from fedcohort.core.schema.field import FACTS, Field, Fields, Range, fields_of
from fedcohort.core.tally import BINS, odds_rows
from fedcohort.core.trust import Trust

# The largest that a client may say of its data.
SAMPLES = 10**12
SIDE = 2**31  # of an example
LARGEST = 1e30  # of a column's mean, and of the root of its spread
TOLERANCE = 1e-6  # relative, of sums of counts
SLACK = 1e-3  # by which probabilities may miss 1 in all
TRUST = Trust()


def answers_of(method: Method) -> list[str]:
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


def profile_fields(method: Method, profile: Profile, privacy: Privacy | None = None) -> Fields:
    """Once, before training: what a client has, and of its labels what the method uses and privacy allows."""
    noised = privacy is not None and privacy.counts == "noised"
    noise = f" with Laplace noise of epsilon {privacy.epsilon:g}" if privacy and noised else ""
    counted = "counts" in method.uses and profile.counts is not None
    return (
        *data_fields(len(profile.shape)),
        *(count_fields(profile.num_classes, noise=noise) if counted else ()),
        *summary_fields({name: table.shape[1:] for name, table in profile.summaries.items()}, noise=noise),
        *(moment_fields(profile.shape[:1]) if profile.scaled else ()),
    )


def data_fields(sides: int) -> Fields:
    """What a client's data are like, when an example has so many sides."""
    whole = torch.int64
    return (
        Field(FACTS, "sizes", (3,), whole, Range(0, SAMPLES), "how many samples it has of each kind"),
        Field(FACTS, "shape", (sides,), whole, Range(0, SIDE), "the shape of an example"),
        Field(FACTS, "vocabulary", (), whole, Range(0, SIDE), "how many tokens it knows"),
    )


def count_fields(classes: int, size: int = SAMPLES, noise: str = "") -> Fields:
    """The labels of a client's ``size`` training samples."""
    most = Range(0, size * (1 + TOLERANCE))
    return (Field("counts", "counts", (classes,), torch.float64, most, f"label counts{noise}"),)


def summary_fields(shapes: Mapping[str, Sequence[int]], size: int = SAMPLES, noise: str = "") -> Fields:
    """What parts of these names count of them."""
    most, words = Range(0, size * (1 + TOLERANCE)), "the summary that {} asks for{}"
    return tuple(
        Field("summaries", name, tuple(shape), torch.float64, most, words.format(name, noise))
        for name, shape in shapes.items()
    )


def moment_fields(columns: Sequence[int], numbers: int = SAMPLES) -> Fields:
    """For one scale of all clients: what each column of a client's training samples holds, at most so many
    ``numbers``."""
    shape, exact = tuple(columns), torch.float64
    spread = "their spread, for data.scale = 'federated'"
    return (
        Field("moments", "number", shape, exact, Range(0, numbers), "how many numbers each column has"),
        Field("moments", "mean", shape, exact, Range(-LARGEST, LARGEST), "their mean"),
        Field("moments", "spread", shape, exact, Range(0, LARGEST**2), spread),
    )


def _loss(trust: Trust, samples: int = 1, or_nan: bool = False) -> Range:
    """Of so many samples together."""
    return Range(0, trust.max_loss * samples, or_nan, "trust.max_loss")


def poll_fields(trust: Trust = TRUST, name: str = "loss", saves: str = "") -> Fields:
    """Before a round: the loss of a model; NaN where a client has none."""
    words = f"the model's loss on training data{saves}"
    return (Field(FACTS, name, (), torch.float64, _loss(trust, or_nan=True), words),)


def survey_fields(
    answer: Callable[[Tensor], Tensor], models: int, size: int = SAMPLES, trust: Trust = TRUST
) -> Fields:
    """What a grouping asks a client of ``size`` samples about so many models: the number of one, how many
    samples each of them fits, or losses."""
    pattern = answer(torch.zeros(models, 1))
    possible = Range(0, size if pattern.dim() else models - 1)
    if pattern.is_floating_point():
        possible = Range(-trust.max_loss, trust.max_loss, setting="trust.max_loss")
    words = "which of all groups' models fits its training data"
    return (Field("answer", "answer", tuple(pattern.shape), pattern.dtype, possible, words),)


def training_fields(
    method: Method,
    classes: int,
    steps: int,
    probes: Collection[str] | None = None,
    sizes: tuple[int, int] = (0, SAMPLES),
    trust: Trust = TRUST,
) -> Fields:
    """Beside the update of so many local steps on a number of samples between these ``sizes``, with these
    ``probes`` or all that the method uses. How far the steps could reach, the server computes itself."""
    every = "trace" in method.uses
    fields = (
        Field(FACTS, "steps", (), torch.int64, Range(0, SAMPLES), "steps"),
        Field(FACTS, "size", (), torch.int64, Range(*sizes), "samples"),
        Field(
            "trace",
            "trace",
            (steps if every else min(1, steps),),
            range=_loss(trust),
            words="every step's loss" if every else "mean loss",
        ),
    )
    known = (
        Field("probes", "loss_before", (), range=_loss(trust), words="the sent model's loss"),
        Field("probes", "outputs", (classes,), range=Range(0, 1 + SLACK), words="mean class probabilities"),
    )
    wanted = method.uses if probes is None else probes
    return (*fields, *(probe for probe in known if probe.name in wanted))


def update_fields(update: Memory) -> Fields:
    """An update as :func:`fedcohort.core.uploads.record` has it."""
    return fields_of({"update": update})


def memory_fields(memory: Memory) -> Fields:
    """What a client remembers for its objective."""
    return fields_of({"memory": memory})


def cross_fields(models: int) -> Fields:
    """The accuracy of others' models; NaN where a client has nothing to try them on."""
    words = "the accuracy of each cohort member's model on validation data"
    return (Field("accuracy", "accuracy", (models,), range=Range(0, 1, or_nan=True), words=words),)


def evaluation_fields(method: Method, classes: int, exact: bool) -> Fields:
    """How the model that serves a client does; ``exact``: class by class."""
    poll = poll_fields(name="train_loss", saves=", instead of the next poll")
    return (
        *score_fields(),
        *(poll if "losses" in method.uses else ()),
        *(by_class_fields(classes) if exact else ()),
    )


def score_fields(sizes: tuple[int, int] = (0, SAMPLES), trust: Trust = TRUST) -> Fields:
    """Of a number of test samples between these ``sizes``."""
    whole = torch.int64
    return (
        Field(FACTS, "size", (), whole, Range(*sizes), "test samples"),
        Field(FACTS, "right", (), whole, Range(0, sizes[1]), "correct answers"),
        Field(FACTS, "loss", (), torch.float64, _loss(trust, sizes[1]), "their loss"),
    )


def by_class_fields(classes: int, size: int = SAMPLES) -> Fields:
    """Of a number of test samples: what those of each class were answered with and, of two classes, how sure
    the model was, in bins of :mod:`fedcohort.core.tally`."""
    whole, possible = torch.int32, Range(0, size)
    words = "test samples of each class by answer"
    answers = Field("by_class", "answers", (classes, classes), whole, possible, words)
    rows, words = odds_rows(classes), f"and by log-odds, in {BINS} bins"
    return (answers, *([Field("by_class", "odds", (rows, BINS), whole, possible, words)] if rows else []))
