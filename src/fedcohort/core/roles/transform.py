"""The role that changes an update on its way: at the client before it is sent, or at the server before it is
averaged."""

from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Round, Updates, View
from fedcohort.core.roles.part import Part


class Transform(Part):
    """One link of the chain between a client's training and the averaging; a method may have any number.

    At clients the links run in the order in which a method names them, then at the server again.
    """

    def init_client(self, profile: Profile) -> Memory:
        """What a client that has never trained remembers for it."""
        return {}

    def upload(self, delta: Tensor, mine: Memory, view: View) -> tuple[Tensor, Memory]:
        """At the client: (what it sends in place of ``delta``, what it remembers)."""
        return delta, mine

    def encode(self, update: Memory) -> Memory:
        """What travels in place of an update that all links have changed. What a later link adds may be lost
        here, in simulations too. Default: itself."""
        return update

    def decode(self, update: Memory, params: int) -> Memory:
        """The inverse, for a model of so many ``params``. Raises ValueError for what ``encode`` never
        makes: whoever sent it may be lying."""
        return update

    def init_server(self, profile: Profile) -> Memory:
        """What it knows at the server before the first round."""
        return {}

    def receive(self, updates: Updates, memory: Memory, now: Round) -> tuple[Updates, Memory]:
        """At the server: one group's updates as they are to be averaged, and what it remembers."""
        return updates, memory
