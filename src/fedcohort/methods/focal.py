"""Focal loss: Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017. https://arxiv.org/abs/1708.02002

Engines fuse only cross-entropies: steps are taken by autograd, without compiled kernels.

Equation:
    FL(p_t) = -a_t (1 - p_t)^gamma log p_t,  p_t: the true class's probability
    a_t = 1; balanced: n_k / (C_k n_kt), from the client's own counts

Where we differ:
    - The paper has a probability for each class by itself, and sets a_t by hand; here p is the softmax, and
      a_t is 1 or by inverse frequency.
    - The paper divides by the number of objects; here the loss is the mean over the batch.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcohort.api import Objective, View, at_least, register, tune
from fedcohort.methods._class_weights import class_weights

SURE = 1e-12  # as good as no doubt; the slope of a power below 1 has no end at 0


@register
@dataclass(frozen=True)
class Focal(Objective):
    """Counts a sample the less the surer the model is of its class, so that steps go to what is hard."""

    gamma: Annotated[float, at_least(0), tune(0, 5)] = 2.0  # how soon the easy is let go; 0: plain training
    balanced: bool = False  # also weigh classes by how rare they are at the client

    def criterion(self, logits: Tensor, labels: Tensor, view: View) -> Tensor:
        log = logits.log_softmax(1).gather(1, labels[:, None])[:, 0]
        losses = -log * (-log.expm1()).clamp(min=SURE) ** self.gamma
        return (losses * class_weights(view).to(logits)[labels] if self.balanced else losses).mean()
