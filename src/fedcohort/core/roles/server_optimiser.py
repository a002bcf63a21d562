"""The role that takes the server's step."""

from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Round, Updates
from fedcohort.core.roles.part import Part


class ServerOptimiser(Part):
    """How a group's model follows the move that averaging made of its updates."""

    def init_server(self, profile: Profile) -> Memory:
        """What it remembers before the first step."""
        return {}

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        """The next model and memory."""
        return params + move, memory
