"""The role that says which model serves which client."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Merge, Phase, Round, Sampling, Updates
from fedcohort.core.roles.part import Part
from fedcohort.models.flat import Flat, Weights


class Grouping(Part):
    """Which model serves which client. ``memory["group"]`` is ``[N]``: the number of each client's group.

    When a hook returns a group number that did not exist, the loop makes that group a copy of the one its
    members came from; numbers have no gaps. A hook before aggregation may move clients between groups that
    exist only if ``remodel`` makes up for updates measured from another group's model.
    """

    sampling: Sampling = "group"  # a cohort of each group; "all": one, each of whom trains for its own group
    shared: ClassVar[bool] = False  # True: a client may be chosen for several groups, and counts for each

    def init_grouping(self, profile: Profile) -> Memory:
        return {"group": torch.zeros(profile.num_clients, dtype=torch.long)}

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        """The model of each group before the first round. Default: the same for all."""
        return [profile.model.init(profile.seed)] * (int(memory["group"].max()) + 1)

    def asks(self, memory: Memory, now: Round, phase: Phase) -> Ids:
        """Clients that get every group's model and answer: ``"before"`` cohorts are chosen, of
        ``now.members``; once they are ``"chosen"``, of ``now.selected``; or when all of ``now.selected`` are
        to be served (``"serving"``). Default: nobody."""
        return now.members[:0]

    def common(self, model: Flat, weights: Weights) -> int:
        """How many bytes of a model all groups have in common, so that who gets every group's model gets them
        once. Default: none."""
        return 0

    def answer(self, losses: Tensor) -> Tensor:
        """At the client: what it says to the loss ``[G, n]`` of each group's model on each of its samples."""
        raise NotImplementedError

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        """Revise groups by the answers of clients ``ids``, stacked."""
        raise NotImplementedError

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

    def tailor(self, memory: Memory, client: int, models: Sequence[Weights]) -> Memory:
        """What this client is sent beside or instead of its group's "params" and "buffers". Default:
        nothing."""
        return {}

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Revise groups before this round's updates are aggregated."""
        return memory

    def merges(self, number: int) -> Merge | None:
        """Whether round ``number``, and so every later one, trains a layer on top of all groups' frozen
        models. The schedule of the learning rate starts anew in the first of them. Default: never."""
        return None

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        """Revise the groups' models after aggregation. Default: as the aggregator made them."""
        return models

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Revise groups after this round's updates were aggregated."""
        return memory

    def of_groups(self, memory: Memory) -> Memory:
        """What results shall tell of each group, ``[groups]`` by the name of the metric, after every round.
        Default: nothing."""
        return {}

    def of_clients(self, memory: Memory) -> Memory:
        """What they shall tell of each client, ``[N]``, when the run ends. Default: nothing."""
        return {}

    def place(self, group: Tensor, counts: Tensor, newcomers: Tensor) -> Tensor | None:
        """``[n, groups]``: how far clients that join later, with label counts ``newcomers [n, C]``, are from
        each group (ascending) of the members, who hold ``counts``. Default: no rule of its own."""
        return None
