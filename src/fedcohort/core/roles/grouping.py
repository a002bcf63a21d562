"""The role that says which model serves which client."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Round, Sampling, Updates
from fedcohort.core.roles.part import Part
from fedcohort.models.flat import Weights


class Grouping(Part):
    """Which model serves which client. ``memory["group"]`` is ``[N]``: the number of each client's group.

    When a hook returns a group number that did not exist, the loop makes that group a copy of the one its
    members came from; numbers have no gaps. A hook before aggregation may move clients between groups that
    exist only if ``remodel`` makes up for updates measured from another group's model.
    """

    sampling: Sampling = "group"  # a cohort of each group; "all": one, each of whom trains for its own group
    shared: ClassVar[bool] = False  # True: a client may be chosen for several groups, and counts for each

    def init_grouping(self, profile: Profile) -> Memory:
        """``memory`` before the first round. Default: one group of all."""
        return {"group": torch.zeros(profile.num_clients, dtype=torch.long)}

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        """The model of each group before the first round. Default: the same for all."""
        return [profile.model.init(profile.seed)] * (int(memory["group"].max()) + 1)

    def odds(self, memory: Memory, profile: Profile) -> Tensor:
        """``[N, cohorts]``: how likely each client is to be drawn for each cohort; 0 or False for not at all.
        Default: by ``sampling``."""
        if self.sampling == "all":
            return torch.ones(profile.num_clients, 1)
        return memory["group"][:, None] == torch.arange(int(memory["group"].max()) + 1)

    def cohort(self, members: int, profile: Profile) -> int:
        """How many of a group's ``members`` train a round. Default: as large a share as of all clients."""
        return min(members, max(1, round(profile.share * members)))

    def calls_all(self, memory: Memory, group: int) -> bool:
        """Whether all clients of the group train this round, whatever the selector would say."""
        return False

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Revise groups before this round's updates are aggregated."""
        return memory

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        """Revise the groups' models after aggregation. Default: as the server's steps made them."""
        return models

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Revise groups after this round's updates were aggregated."""
        return memory
