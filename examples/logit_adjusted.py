"""Logit adjustment: Menon et al., "Long-tail learning via logit adjustment", ICLR 2021.
https://arxiv.org/abs/2007.07314

Each client adjusts by the shares of its own labels. Evaluation uses the logits as they are.

Equation:
    z_c <- z_c + tau log((n_kc + 1) / (n_k + C))      (before the cross-entropy)

Where we differ:
    The paper has one data set without absent classes; here every class counts one sample more, so that a
    class a client does not hold has a finite logarithm.
"""

from dataclasses import dataclass
from typing import Annotated

import torch

from fedcohort.api import LogitMap, Objective, View, at_least, register


@register
@dataclass(frozen=True)
class LogitAdjusted(Objective):
    """Raises each logit by the logarithm of its class's share, so that common classes need not be learnt."""

    tau: Annotated[float, at_least(0)] = 1.0  # strength; 0 is plain training

    def logits(self, view: View) -> LogitMap:
        share = (view.counts + 1) / (view.counts.sum() + len(view.counts))
        return LogitMap(shift=self.tau * share.log().to(torch.float32))
