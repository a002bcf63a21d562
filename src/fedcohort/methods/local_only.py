"""The local reference line: what each client reaches alone.

Only selectors that ask clients for nothing can be combined with it.

Equation:
    x_k <- x_k - lr grad F_k(x_k), from the same start for every client k

Where we differ:
    A client trains in the rounds for which it is chosen, so that the budget is that of the other methods.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedcohort.api import (
    Averaging,
    Grouping,
    Memory,
    Objective,
    Profile,
    ServerOptimiser,
    Trained,
    View,
    Weights,
    register,
)


@register
@dataclass(frozen=True)
class LocalOnly(Objective, Averaging, ServerOptimiser, Grouping):
    """Every client trains its own model from the common start; nothing is sent, nothing is shared."""

    personal: ClassVar[bool] = True
    silent: ClassVar[bool] = True

    def init_client(self, profile: Profile) -> Memory:
        return profile.model.init(profile.seed)._asdict()

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        return {}, trained.weights._asdict()
