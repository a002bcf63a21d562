"""The role that says what a client makes of the model that serves it."""

from torch import Tensor

from fedcohort.core.profile import Local
from fedcohort.core.roles.part import Part
from fedcohort.models.flat import Flat


class Adaptation(Part):
    """What a client does to the model that serves it before it uses it: some further training on its own
    samples, whose outcome it keeps. Nothing of it is sent, and the next round knows nothing of it.

    It minimises the loss of the method's objective; what pulls a client towards the others is left out.
    """

    def budget(self, local: Local) -> Local | None:
        """How long it trains, and with which learning rate, when ``local`` is the budget of the next round.
        None: not at all."""
        return None

    def frozen(self, model: Flat) -> Tensor | None:
        """``[P]``: which parameters stay as they are. None: all may change."""
        return None
