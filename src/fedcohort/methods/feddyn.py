"""FedDyn: Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021.
https://arxiv.org/abs/2111.04263

Where the paper leaves a choice: clients train from the corrected model, and the one that answers is the
plain mean of the clients that trained (``evaluate="sent"`` is the corrected one). The authors' code also
scales alpha by each client's share of the samples and clips gradients; this is the paper's plain alpha.
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
    evaluate: Literal["avg", "sent"] = "avg"  # which model answers: the clients' mean, or the one sent next

    def init_aggregator(self, profile: Profile) -> Memory:
        params = profile.model.init(profile.seed).params
        return {"h": torch.zeros_like(params), "avg": params}

    def init_client(self, profile: Profile) -> Memory:
        return {"slope": torch.zeros(profile.model.num_params)}

    def anchor(self, view: View) -> Anchor:
        return Anchor(pull=self.alpha, offset=-view.mine["slope"])

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        delta = trained.weights.params - begun.params
        return {"delta": delta}, {"slope": view.mine["slope"] - self.alpha * delta}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return torch.full((len(updates),), 1 / len(updates))

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        avg = params + move
        h = memory["h"] - self.alpha * move * (len(updates) / len(now.members))  # all clients, not the cohort
        return avg - h / self.alpha, {"h": h, "avg": avg}

    def serve(self, params: Tensor, memory: Memory) -> Tensor:
        return memory["avg"] if self.evaluate == "avg" else params

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """h is the mean of its members' slopes, so a new group recomputes it; who never trained counts as
        zero."""
        known = [clients[client]["slope"] for client in members.tolist() if client in clients]
        total = torch.stack(known).sum(0) if known else torch.zeros_like(memory["h"])
        return {**memory, "h": total / len(members)}
