"""Class weights by inverse frequency: King and Zeng, "Logistic Regression in Rare Events Data", Political
Analysis 2001; ``class_weight="balanced"`` in scikit-learn. https://doi.org/10.1093/oxfordjournals.pan.a004868

For federations in which a class is rare at every client, so that a model that never predicts it is right most
of the time. Each client weighs by its own counts, which it tells nobody. Engines fuse no weights: steps are
taken by autograd, without compiled kernels.

Equation:
    F_k(x) = (1 / n_k) sum_i w_k,y_i CE_i(x),  w_kc = n_k / (C_k n_kc),
    C_k the number of classes that client k holds

Where we differ:
    - scikit-learn counts all classes; here those that the client holds, so that its mean weight is 1 and a
      client of one class trains as without weights.
    - A mini-batch is divided by its size, not by its weights as PyTorch's ``cross_entropy`` does: on average
      over batches that is F_k.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from fedcohort.api import Objective, View, register
from fedcohort.methods._class_weights import class_weights


@register
@dataclass(frozen=True)
class Balanced(Objective):
    """Weighs each sample by how rare its class is at the client, so that all classes it holds count alike."""

    def criterion(self, logits: Tensor, labels: Tensor, view: View) -> Tensor:
        weight = class_weights(view).to(logits)
        return F.cross_entropy(logits, labels, weight, reduction="none").mean()
