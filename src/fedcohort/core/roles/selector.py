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
        return {}

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        """Clients that must report the loss of their current model first. Default: nobody."""
        return None

    def poll_samples(self, now: Round) -> int | None:
        """On how many of its samples, drawn anew each round, a candidate measures that loss. Default: all."""
        return None

    def rehearse(self, memory: Memory, now: Round) -> Ids | None:
        """Clients that first train a copy of the model, which is thrown away once the candidates have told
        their loss on it. Default: nobody."""
        return None

    def learn(self, memory: Memory, now: Round, losses: Tensor, rehearsed: Tensor | None) -> Memory:
        """Learn from the candidates' losses before choosing; ``rehearsed`` are those after a rehearsal."""
        return memory

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        """At most ``now.cohort`` distinct clients of ``now.members``, in order of choice.

        ``losses`` is ``[N]``: NaN for clients that were not asked or did not answer with a finite number.
        """
        raise NotImplementedError

    def allow(self, memory: Memory, now: Round) -> Tensor | None:
        """``[selected, C]``: on how many samples of each class each of ``now.selected`` trains at most.
        Default: on all."""
        return None

    def judge(self, memory: Memory, now: Round, updates: Updates) -> Tensor | None:
        """``[S]``: whose update is wanted, seen from what was told before the upload (``updates.probes``).
        The others send none and forget the round. Default: everybody's."""
        return None

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        """Learn from the round: ``now.selected`` were asked, ``updates.ids`` answered, ``now.declined`` were
        judged out."""
        return memory
