"""The role that makes one move of a group's updates."""

from torch import Tensor

from fedcohort.core.deltas import combine
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Round, Updates
from fedcohort.core.roles.part import Part


class Averaging(Part):
    """How one group's updates become one move, by default the sum of deltas with these ``weights``."""

    def init_server(self, profile: Profile) -> Memory:
        """What it knows at the server. It stays the same, unless the part is a server optimiser as well."""
        return {}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        """The factor of each client's delta; they need not sum to one. Default: its share of the samples."""
        return updates.shares

    def combine(self, weights: Tensor, updates: Updates) -> Tensor:
        """The move. Default: ``weights @ deltas``, which needs no matrix of them."""
        return combine(weights, updates.up["delta"])

    def statistics(self, weights: Tensor, updates: Updates) -> Tensor:
        """``[S]``, summing to one: each client's part in the mean of BatchNorm statistics, when ``weights``
        are the factors of the deltas. Default: its share of the samples."""
        return updates.shares
