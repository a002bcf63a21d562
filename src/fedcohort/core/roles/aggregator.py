"""The role that makes a group's next model of its updates."""

from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Clients, Ids, Memory, Round, Updates
from fedcohort.core.roles.part import Part


class Aggregator(Part):
    """How one group's updates become its next model: ``step(params, weights @ deltas)``."""

    def init_aggregator(self, profile: Profile) -> Memory:
        return {}

    def broadcast(self, memory: Memory) -> Memory:
        """What is sent to clients beside the model."""
        return {}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        """The factor of each client's delta; they need not sum to one. Default: its share of the samples."""
        return updates.shares

    def statistics(self, weights: Tensor, updates: Updates) -> Tensor:
        """``[S]``, summing to one: each client's part in the mean of BatchNorm statistics, when ``weights``
        are the factors of the deltas. Default: its share of the samples."""
        return updates.shares

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        """The next model and memory from the weighted sum of deltas."""
        return params + move, memory

    def iid(self, memory: Memory) -> Tensor | None:
        """``[N]``: which clients it takes for IID. Default: it does not say."""
        return None

    def serve(self, params: Tensor, memory: Memory) -> Tensor:
        """The model that answers, when it is not the one that clients train on."""
        return params

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """The memory of a group that now has these ``members``, from that of the group they came from."""
        return memory
