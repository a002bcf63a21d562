"""The role that says what a client minimises, and what it remembers."""

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.core.records import Anchor, LogitMap, Memory, Trained, View
from fedcohort.core.roles.optional import Freezes
from fedcohort.core.roles.part import Part
from fedcohort.models.flat import Weights


class Objective(Part):
    """What a client minimises, and what it remembers. Hooks run at the client, for one client."""

    personal: ClassVar[bool] = False  # True: the client keeps "params", "buffers" that serve it
    sent_as_it_is: ClassVar[str] = ""  # why no transform may change what it sends

    @property
    def affine(self) -> bool:
        """Whether ``anchor`` and ``logits`` say all it does to a step, so that every engine can fuse it."""
        return not (self.has_own("criterion") or isinstance(self, Freezes))

    def init_client(self, profile: Profile) -> Memory:
        """What a client that has never trained remembers."""
        return {}

    def anchor(self, view: View) -> Anchor:
        """What pulls at the steps of this round. Default: nothing."""
        return Anchor()

    def logits(self, view: View) -> LogitMap:
        """How logits change before the loss. Default: not at all."""
        return LogitMap()

    def criterion(self, logits: Tensor, labels: Tensor, view: View) -> Tensor:
        """The loss of one mini-batch. Prefer ``logits``, which every engine can fuse."""
        scale, shift = self.logits(view)
        if scale is not None:
            logits = logits * scale
        if shift is not None:
            logits = logits + shift
        return F.cross_entropy(logits, labels)

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        """(what goes up, what the client remembers)."""
        return {"delta": trained.weights.params - begun.params}, view.mine
