"""Fine-tuning: Wang et al., "Federated Evaluation of On-device Personalization", 2019; Cheng, Chadha and
Duchi, "Fine-tuning is Fine in Federated Learning", 2021. https://arxiv.org/abs/1910.10252

It composes with everything: ``fedavg+finetune``, ``ifca+finetune(epochs=2)``. Each evaluation costs as many
steps of every client, so a run of many rounds is evaluated every few of them (``evaluate.every``).

Equation:
    y_k = x; T_k times y_k <- y_k - lr grad F_k(y_k), on client k's own samples
    y_k serves client k, x the next round

Where we differ:
    - F_k is the loss of the method's objective: ``balanced+finetune`` stays balanced. What ties a client to
      the others (FedProx's pull, control variates) is left out.
    - A client without training samples, or whose steps do not end in numbers, is served by x.
    - The papers look for the epochs and learning rate that suit each client; here they are everybody's.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from torch import Tensor

from fedcohort.api import Adaptation, Flat, Local, Profile, above, below, between, last_layer, register, tune


@register
@dataclass(frozen=True)
class FineTune(Adaptation):
    """Each client trains the model that serves it a little further on its own samples, and uses that."""

    epochs: Annotated[float, above(0), below(100_000), tune(1, 10)] = 1.0  # over the client's samples
    steps: Annotated[int, between(1, 10**7)] | None = None  # if given, so many mini-batches instead of epochs
    lr: Annotated[float, above(0)] | None = None  # None: that of the next round
    layers: Literal["all", "last"] = "all"  # which of them move

    def server_bytes(self, profile: Profile) -> int:
        """Where clients are simulated: a model for each, which is copied to be kept."""
        return 3 * 4 * profile.num_clients * profile.model.num_params

    def check(self, profile: Profile) -> None:
        self.frozen(profile.model)

    def budget(self, local: Local) -> Local | None:
        return replace(local, lr=self.lr or local.lr, epochs=self.epochs, steps=self.steps)

    def frozen(self, model: Flat) -> Tensor | None:
        return None if self.layers == "all" else ~model.within([last_layer(model)[0]])
