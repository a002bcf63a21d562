"""FedRS: Li and Zhan, "FedRS: Federated Learning with Restricted Softmax for Label Distribution Non-IID
Data", KDD 2021.

Where paper and code differ: missing classes are scaled by alpha and held ones not at all, on the whole
logit, as the paper has it; ``scale="proportional"`` is the code's smooth version of it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch

from fedcohort.core.method import register
from fedcohort.core.parts import LogitMap, Objective, View
from fedcohort.core.settings import between


@register
@dataclass(frozen=True)
class FedRS(Objective):
    """Shrinks the logits of classes a client does not hold, so that it does not unlearn them."""

    alpha: Annotated[float, between(0, 1)] = 0.5  # factor of a missing class; 1 is plain training
    scale: Literal["binary", "proportional"] = "binary"  # held or not, or by samples held

    def logits(self, view: View) -> LogitMap:
        held = (view.counts > 0).float()
        share = held if self.scale == "binary" else view.counts / view.counts.max()
        return LogitMap(scale=self.alpha + (1 - self.alpha) * share.to(torch.float32))
