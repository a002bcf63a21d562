"""FedRS: Li and Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID
Data", KDD 2021.

Evaluation uses the logits as they are.

Equation:
    z_c <- s_c z_c,  s_c = 1 if n_kc > 0 else alpha   (before the cross-entropy)

Where we differ:
    The scale is the paper's, 1 or alpha, on the whole logit. The authors' code has the smooth alpha + (1 -
    alpha) n_kc / max n_k (``scale="proportional"``), leaves out the bias, clips gradients and takes at least
    five steps; these three are not imitated.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from fedcohort.api import LogitMap, Objective, View, between, register, tune


@register
@dataclass(frozen=True)
class FedRS(Objective):
    """Shrinks the logits of classes a client does not hold, so that it does not unlearn them."""

    alpha: Annotated[float, between(0, 1), tune(0, 1)] = 0.5  # factor of a missing class; 1 is plain training
    scale: Literal["binary", "proportional"] = "binary"  # held or not, or by samples held

    def logits(self, view: View) -> LogitMap:
        held = (view.counts > 0).float()
        share = held if self.scale == "binary" else view.counts / view.counts.max()
        return LogitMap(scale=self.alpha + (1 - self.alpha) * share.to(torch.float32))
