"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021.
https://arxiv.org/abs/2111.04263

Equation:
    client: minimise F_k(y) - <lambda_k, y> + (alpha / 2) ||y - x||^2
            lambda_k <- lambda_k - alpha delta_k
    server: h <- h - (alpha / K) sum_k delta_k
            x <- x + (1 / |S|) sum_k delta_k - h / alpha

Where we differ:
    - The authors' code keeps several models. Here clients train from the corrected x, and the plain mean of
      the clients that trained answers. ``evaluate="all"`` is the mean of all clients' latest models, which
      the authors plot and for which the server keeps them all; ``evaluate="sent"`` is the corrected x.
    - The paper has one alpha for all; its code divides it by a client's size relative to the mean
      (``scaled=True``), and clips gradients, which is not imitated.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedcohort.api import (
    Anchor,
    Averaging,
    Broadcasts,
    Clients,
    Ids,
    Memory,
    Objective,
    Profile,
    Round,
    ServerOptimiser,
    Serves,
    Trained,
    Updates,
    View,
    Weights,
    above,
    mean_memory,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FedDyn(Objective, Averaging, ServerOptimiser, Broadcasts, Serves):
    """Bends each client's loss by a linear and a quadratic term until local optima agree with the global
    one."""

    sent_as_it_is: ClassVar[str] = "clients remember what they moved, and the server the mean of that"

    alpha: Annotated[float, above(0), tune(1e-3, 1)] = 0.01  # strength of the pull towards the sent model
    scaled: bool = False  # pull a client by alpha * mean size / its size, as in the authors' code
    evaluate: Literal["avg", "all", "sent"] = "avg"  # what answers: the mean of the cohort, of all, or x

    def server_bytes(self, profile: Profile) -> int:
        """The last model of each client, and its next value."""
        return 2 * 4 * profile.num_clients * profile.model.num_params if self.evaluate == "all" else 0

    def init_server(self, profile: Profile) -> Memory:
        zeros = torch.zeros(profile.model.num_params)
        mean_size = profile.size[profile.eligible].float().mean()
        memory = {"h": zeros, "lag": zeros, "mean_size": mean_size}  # lag: from the next model to who answers
        if self.evaluate != "all":
            return memory
        last = torch.zeros(profile.num_clients, profile.model.num_params)
        return {**memory, "last": last, "begun": torch.tensor(False)}

    def broadcast(self, memory: Memory) -> Memory:
        return {"mean_size": memory["mean_size"]} if self.scaled else {}

    def init_client(self, profile: Profile) -> Memory:
        return {"slope": torch.zeros(profile.model.num_params)}  # lambda_k, for the common alpha

    def anchor(self, view: View) -> Anchor:
        factor = float(view.down["mean_size"]) / view.size if self.scaled else 1.0
        return Anchor(pull=self.alpha * factor, offset=-factor * view.mine["slope"])

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        delta = trained.weights.params - begun.params
        return {"delta": delta}, {"slope": view.mine["slope"] - self.alpha * delta}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return updates.even

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        h = memory["h"] - self.alpha * move * (len(updates) / len(now.members))  # all clients, not the cohort
        ahead = params + move - h / self.alpha
        if self.evaluate != "all":
            return ahead, {**memory, "h": h, "lag": h / self.alpha}
        start = params.expand_as(memory["last"])  # counts for clients that never trained
        last = memory["last"] if memory["begun"] else start
        last = last.index_copy(0, updates.ids, params + updates.up["delta"])
        lag = last[now.members].mean(0) - ahead
        return ahead, {**memory, "h": h, "lag": lag, "last": last, "begun": torch.tensor(True)}

    def serve(self, params: Tensor, memory: Memory) -> Tensor:
        return params if self.evaluate == "sent" else params + memory["lag"]

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """h is the mean of its members' slopes, so a new group recomputes it."""
        return {**memory, "h": mean_memory(clients, members, "slope", memory["h"])}
