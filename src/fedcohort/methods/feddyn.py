"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021.
https://arxiv.org/abs/2111.04263

Equation:
    client: minimise F_k(y) - <lambda_k, y> + (alpha / 2) ||y - x||^2
            lambda_k <- lambda_k - alpha delta_k
    server: h <- h - (alpha / K) sum_k delta_k
            x <- x + (1 / |S|) sum_k delta_k - h / alpha

Where we differ:
    - The paper trains and evaluates several models. Here clients train from the corrected x, and the plain
      mean of the clients that trained answers (``evaluate="sent"``: the corrected one).
    - The paper has one alpha for all; its code divides it by a client's size relative to the mean
      (``scaled=True``), and clips gradients, which is not imitated.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.core.flat import Weights
from fedcohort.core.method import register
from fedcohort.core.parts import (
    Aggregator,
    Anchor,
    Clients,
    Ids,
    Memory,
    Objective,
    Round,
    Trained,
    Updates,
    View,
)
from fedcohort.core.profile import Profile
from fedcohort.core.settings import above


@register
@dataclass(frozen=True)
class FedDyn(Objective, Aggregator):
    """Bends each client's loss by a linear and a quadratic term until local optima agree with the global
    one."""

    alpha: Annotated[float, above(0)] = 0.01  # strength of the pull towards the sent model
    scaled: bool = False  # pull a client by alpha * mean size / its size, as in the authors' code
    evaluate: Literal["avg", "sent"] = "avg"  # which model answers: the clients' mean, or the one sent next

    def init_aggregator(self, profile: Profile) -> Memory:
        zeros = torch.zeros(profile.model.num_params)
        mean_size = profile.size[profile.eligible].float().mean()
        return {"h": zeros, "lag": zeros, "mean_size": mean_size}  # lag: from the sent model to the mean

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
        lag = h / self.alpha
        return params + move - lag, {**memory, "h": h, "lag": lag}

    def serve(self, params: Tensor, memory: Memory) -> Tensor:
        return params + memory["lag"] if self.evaluate == "avg" else params

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """h is the mean of its members' slopes, so a new group recomputes it; who never trained counts as
        zero."""
        known = [clients[client]["slope"] for client in members.tolist() if client in clients]
        total = torch.stack(known).sum(0) if known else torch.zeros_like(memory["h"])
        return {**memory, "h": total / len(members)}
