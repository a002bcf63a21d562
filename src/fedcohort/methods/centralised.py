"""The centralised reference line: what training on everybody's data in one place reaches.

Equation:
    x <- x - lr grad F(x), F the mean loss over all clients' samples

Where we differ:
    Papers rarely say how long this line trains. Here a round passes over as many samples as a round of the
    federation would.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedcohort.api import (
    Adaptation,
    Averaging,
    Grouping,
    Ids,
    Memory,
    Objective,
    Round,
    Selector,
    ServerOptimiser,
    register,
)


@register
@dataclass(frozen=True)
class Centralised(Selector, Objective, Averaging, ServerOptimiser, Grouping, Adaptation):
    """All training data are moved to one place and passed over as often as the federation would; not
    federated."""

    pooled: ClassVar[bool] = True
    silent: ClassVar[bool] = True  # after the data have moved

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return now.members
