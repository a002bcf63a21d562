"""What a server may know: :class:`Profile`. What every client does with its data: :class:`Local`.

No example enters a Profile, so a method that wants one does not type-check. In a deployment the profile is
filled from one message per client, with its label counts exact, noised on the client, or withheld.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedcohort.models.flat import Flat
from fedcohort.util.errors import UserError
from fedcohort.util.settings import above, at_least, below, between, tune

STRICTNESS = ("exact", "noised", "withheld")  # of Privacy.counts


@dataclass(frozen=True)
class Local:
    """The local training budget, shared by all methods of a comparison."""

    lr: Annotated[float, above(0), tune(1e-3, 1)] = 0.05
    epochs: Annotated[float, above(0), below(100_000)] = 1.0
    steps: Annotated[int, between(1, 10**7)] | None = (
        None  # if given, this many mini-batches instead of epochs
    )
    batch: Annotated[int, at_least(1)] = 32
    optimiser: Literal["sgd", "adam"] = "sgd"
    momentum: Annotated[float, at_least(0), below(1)] = 0.0
    nesterov: bool = False
    weight_decay: Annotated[float, at_least(0)] = 0.0
    decay: Annotated[float, above(0), below(1000)] = 1.0  # the learning rate is multiplied by this ...
    decay_every: Annotated[int, at_least(1)] = 1  # ... every this many rounds
    drop_last: bool = False  # leave out an epoch's short last batch
    augment: Literal["fedentopt"] | None = None  # change training images at random, as that paper does
    bn: Literal["average", "local", "fresh"] = "average"  # whose BatchNorm statistics clients use

    def lr_at(self, round_number: int) -> float:
        return self.lr * self.decay ** (round_number // self.decay_every)

    def at(self, round_number: int) -> "Local":
        """The budget of one round: the same, with its learning rate."""
        return self if self.decay == 1 else replace(self, lr=self.lr_at(round_number), decay=1.0)

    def keeps_statistics(self, model: Flat) -> bool:
        """Whether BatchNorm statistics stay with each client; a model without any has none to keep."""
        return self.bn == "local" and model.num_buffers > 0

    def batches_per_epoch(self, size: int) -> int:
        whole, rest = divmod(size, self.batch)
        return whole if whole and (self.drop_last or not rest) else whole + 1

    def steps_for(self, size: int) -> int:
        """Mini-batches in one round of a client with ``size`` samples."""
        return self.steps or max(1, round(self.epochs * self.batches_per_epoch(size)))


@dataclass(frozen=True)
class Privacy:
    """What clients reveal of their labels before training."""

    counts: Literal["exact", "noised", "withheld"] = "exact"
    epsilon: Annotated[float, between(1e-6, 1e6)] = 0.5  # of the Laplace noise, when counts are noised

    @property
    def strictness(self) -> tuple[int, float]:
        """Larger where less is revealed."""
        return STRICTNESS.index(self.counts), -self.epsilon


@dataclass(frozen=True)
class Profile:
    """All that the server side of a method may look at."""

    size: Tensor  # [N] training samples of each client
    held_out: Tensor  # [N] validation samples of each client
    counts: Tensor | None  # [N, C] label counts as revealed, or None when withheld
    num_classes: int
    model: Flat
    local: Local
    seed: int
    summaries: Mapping[str, Tensor] = field(default_factory=dict)  # [N, ...] of each part that asks for one
    shape: tuple[int, ...] = ()  # of one example
    began: int = 0  # the round in which the schedule of the learning rate starts
    cohort: int = 0  # how many of all clients are to train a round; 0 where none do
    scaled: bool = False  # by moments that each client told

    @property
    def num_clients(self) -> int:
        return len(self.size)

    @cached_property
    def eligible(self) -> Tensor:
        """Clients that have something to train on; the others are served but never asked."""
        return self.size.nonzero().flatten()

    @property
    def share(self) -> float:
        """Of those clients, how many are to train a round."""
        return self.cohort / max(1, len(self.eligible))

    def known_counts(self, who: str) -> Tensor:
        """The label counts, or a sentence for the user when nobody may see them."""
        if self.counts is None:
            raise UserError(
                f"{who} needs label counts, but privacy.counts is 'withheld': "
                "set it to 'exact' or 'noised', or choose a method that needs none"
            )
        return self.counts

    def known_table(self, who: str, counts: bool) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """The label counts, or else this part's summaries, and which clients have data and told of some."""
        table = self.known_counts(who) if counts else self.known_summary(who)
        told = (table.flatten(1).sum(1) > 0) & (self.size > 0)
        return table.numpy(), told.nonzero().flatten().numpy()

    def known_summary(self, who: str) -> Tensor:
        """What this part's `summarise` counted, as revealed, or a sentence for the user."""
        if who not in self.summaries:
            raise UserError(
                f"{who} needs a summary of each client's data, but privacy.counts is 'withheld': "
                "set it to 'exact' or 'noised', or choose a method that needs none"
            )
        return self.summaries[who]
