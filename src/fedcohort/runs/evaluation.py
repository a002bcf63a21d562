"""What is measured of a run, when, and which of the numbers ranks methods."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedcohort.core.engine import Samples
from fedcohort.core.evaluate import VALIDATION
from fedcohort.core.method import Method
from fedcohort.core.task import Task
from fedcohort.data import Federation
from fedcohort.util.errors import UserError
from fedcohort.util.settings import at_least, between

Metric = Literal[
    "global.accuracy",
    "global.balanced_accuracy",
    "global.macro_f1",
    "global.auroc",
    "global.average_precision",
    "global.loss",
    "personal.accuracy",
    "personal.balanced_accuracy",
    "personal.macro_f1",
    "personal.worst_accuracy",
    "personal.loss",
]
CHOSEN = "chosen_round"  # by validation samples
OVER_ROUNDS = ("target", "last", "best", "blocks", "smooth")  # settings that sum up test accuracy
OF_TWO = {"global.auroc", "global.average_precision"}
BY_CLASS = ("balanced_accuracy", "macro_f1", "auroc", "average_precision")  # need labels of test samples


@dataclass(frozen=True)
class Evaluation:
    """What is measured, and when. The last round always is."""

    every: Annotated[int, at_least(1)] = 1  # rounds between evaluations
    clients_every: Annotated[int, at_least(1)] | None = (
        None  # rounds between those of every client's accuracy
    )
    adapted: bool = False  # also measure after one more local budget, at the end
    everybody: bool = False  # also measure each client's model on all clients' test samples, at the end
    target: Annotated[float, between(0, 1)] | None = None  # global accuracy whose first round is reported
    last: Annotated[int, at_least(1)] | None = None  # mean global accuracy of this many last rounds
    best: bool = False  # the highest global accuracy of any evaluated round
    blocks: Annotated[int, at_least(1)] | None = None  # mean global accuracy of every so many rounds
    smooth: Annotated[float, between(0, 1)] | None = None  # weight of a round in the next: a moving average
    metric: Metric = "global.accuracy"  # by which methods are ranked
    on: Samples = "test"  # which samples rank methods and choose the round; a user's file means "validation"
    patience: Annotated[int, at_least(1)] | None = None  # evaluations without a better one that end a run

    def __post_init__(self) -> None:
        if self.clients_every and self.clients_every % self.every:
            raise UserError(
                f"evaluate.clients_every: {self.clients_every} is no multiple of evaluate.every, "
                f"{self.every}, and other rounds are not evaluated: write {self.every}, or a multiple"
            )
        if self.patience and self.on == "test":
            raise UserError(
                "evaluate.patience: it is validation samples that say when to stop, else test samples would "
                "choose the round: set evaluate.on = 'validation'"
            )
        if self.on == "validation" and (asked := [key for key in OVER_ROUNDS if getattr(self, key)]):
            raise UserError(
                f"evaluate.{asked[0]}: it sums up test accuracy over rounds, and with evaluate.on = "
                "'validation' test samples are looked at once: leave it out, or set evaluate.on = 'test'"
            )

    def of_clients(self, number: int) -> bool:
        """Whether every client's accuracy is kept in this round, be it the last or not."""
        return self.clients_every is not None and number % self.clients_every == 0

    @property
    def ranked_by(self) -> str:
        """The number by which methods are ranked, and rounds chosen."""
        return on_samples(self.on, self.metric)

    @property
    def untold(self) -> UserError:
        """Where clients keep their labels for themselves."""
        return UserError(
            f"evaluate.metric: clients do not tell what {self.metric} needs, their labels, unless "
            "privacy.counts (and --privacy of each) is 'exact': use global.accuracy or personal.accuracy"
        )

    def check(self, method: Method, task: Task) -> None:
        """Raises UserError if the clients of this task have no such number."""
        classes, privacy = task.federation.num_classes, method.privacy(task.privacy)
        if self.metric in OF_TWO and classes != 2:
            raise UserError(
                f"evaluate.metric: {self.metric} is a number of two classes, and there are {classes} here: "
                "use global.balanced_accuracy or global.macro_f1"
            )
        if self.metric.endswith(BY_CLASS) and privacy.counts != "exact":
            raise self.untold
        if self.everybody and not isinstance(task.federation, Federation):
            raise UserError(
                "evaluate.everybody: every client would be sent the models of all others, which only a "
                "simulation does: leave it out"
            )
        if self.on == "validation" and method.everything:
            raise UserError(
                f"evaluate.on: {method.title} trains on validation samples too, which can then choose "
                "nothing: set evaluate.on = 'test'"
            )
        if self.on == "validation" and not bool(task.federation.sizes[1].any()):
            raise UserError(
                "evaluate.on: no client has validation samples: set split.validation = 0.2, or "
                "evaluate.on = 'test'"
            )


def on_samples(on: str, metric: str) -> str:
    """What a number is called, measured on these samples."""
    return f"{VALIDATION}{metric}" if on == "validation" else metric
