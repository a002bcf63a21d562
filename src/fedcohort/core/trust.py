"""How far a server believes clients that it cannot look at: table ``[trust]`` of an experiment.

Only deployments use it; the clients of a simulation are as the experiment made them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from fedcohort.util.settings import above, at_least


@dataclass(frozen=True)
class Trust:
    """The largest claims that are still believed."""

    max_size_ratio: Annotated[float, at_least(1)] = 100.0  # training samples, by the clients' median
    max_update_ratio: Annotated[float, at_least(1)] = (
        1000.0  # norm of what is sent up, by the cohort's median
    )
    max_loss: Annotated[float, above(0)] = 1e6  # of any loss told
    max_loss_ratio: Annotated[float, at_least(1)] = 100.0  # by the cohort's median, or by that of guessing


def middle(values: Iterable[float]) -> float:
    """The median; of an even number the upper one, so that one of two is never called odd; 0 of none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
