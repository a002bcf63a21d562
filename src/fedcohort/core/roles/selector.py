"""The role that chooses who trains."""

from typing import ClassVar

from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Round, Updates
from fedcohort.core.roles.part import Part


class Selector(Part):
    """Who trains this round."""

    heeds_odds: ClassVar[bool] = False  # True: draws with Round.draw, so odds that a grouping gives count

    def init_selector(self, profile: Profile) -> Memory:
        """What it knows before the first round."""
        return {}

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        """At most ``now.cohort`` distinct clients of ``now.members``, in order of choice.

        ``losses`` are those that a selector that :class:`~.optional.Polls` asked for, ``[N]``: NaN for
        clients that were not asked or did not answer with a finite number.
        """
        raise NotImplementedError

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        """Learn from the round: ``now.selected`` were asked, ``updates.ids`` answered, ``now.declined`` were
        judged out."""
        return memory
