"""FedLC: Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022.
https://arxiv.org/abs/2209.00189

Evaluation uses the logits as they are.

Equation:
    z_c <- z_c - tau n_kc^(-1/4)                      (before the cross-entropy)

Where we differ:
    - The softmax runs over all classes. The printed loss leaves out the true class in the denominator, is
      then unbounded below and was reported to collapse (``denominator="others"``).
    - A class without samples has an infinite margin and takes no part (``missing="clamp"``: as if it had one
      sample); only a client with a single class, which would then have nothing to learn, counts one sample
      for each missing class.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.api import LogitMap, Objective, View, at_least, register, tune

MASKED = -1e9  # as good as minus infinity to a softmax, and zero times it is zero


@register
@dataclass(frozen=True)
class FedLC(Objective):
    """Lowers each logit by a margin that shrinks with the client's samples of that class."""

    tau: Annotated[float, at_least(0), tune(0, 2)] = 1.0  # size of the margin of a class with one sample
    missing: Literal["mask", "clamp"] = "mask"  # a class without samples: left out, or as if it had one
    denominator: Literal["all", "others"] = "all"  # classes in the softmax: all, or all but the true one

    @property
    def affine(self) -> bool:
        return self.denominator == "all"

    def logits(self, view: View) -> LogitMap:
        if not self.tau:
            return LogitMap()
        held = view.counts > 0
        alone = held.sum() <= 1  # no other class to be told from
        margin = self.tau * view.counts.clamp(min=1).to(torch.float32) ** -0.25
        if self.missing == "mask":
            margin = torch.where(held | alone, margin, -MASKED)
        return LogitMap(shift=-margin)

    def criterion(self, logits: Tensor, labels: Tensor, view: View) -> Tensor:
        if self.denominator == "all":
            return super().criterion(logits, labels, view)
        shift = self.logits(view).shift
        logits = logits if shift is None else logits + shift
        true = torch.nn.functional.one_hot(labels, logits.shape[1]).bool()
        others = logits.masked_fill(true, MASKED).logsumexp(1)
        return (others - logits.gather(1, labels[:, None])[:, 0]).mean()
