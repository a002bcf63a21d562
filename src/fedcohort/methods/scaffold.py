"""SCAFFOLD: Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020. https://arxiv.org/abs/1910.06378

Equation:
    client: y <- y - lr (grad F_k(y) + c - c_k)
            c_k+ = c_k - c - delta_k / r_k              (option II)
            c_k+ = grad F_k(x)                          (option I)
    server: x <- x + server_lr (1 / |S|) sum_k delta_k
            c <- c + (1 / K) sum_k (c_k+ - c_k)

Where we differ:
    - The control variate divides by the reach r_k of the local optimiser instead of ``lr T_k``. The two are
      equal without momentum; with momentum the paper's divisor diverges and the reach is exact.
    - ``mode="niid"`` imitates NIID-Bench, which corrects the weights after the optimiser's step and keeps the
      paper's divisor: the same without momentum, and biased with it.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

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
    Trained,
    Updates,
    UserError,
    View,
    Weights,
    above,
    mean_memory,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class Scaffold(Objective, Averaging, ServerOptimiser, Broadcasts):
    """Cancels client drift with control variates: c at the server, c_k at each client."""

    server_lr: Annotated[float, above(0), tune(0.1, 3)] = 1.0  # length of the server's step
    option: Literal["I", "II"] = "II"  # c_k from the gradient at the sent model, or from the movement
    mode: Literal["reach", "niid"] = "reach"  # how c - c_k corrects: the gradient, or each step's result
    weighted: bool = False  # average movements by samples instead of evenly; c stays an even mean

    def check(self, profile: Profile) -> None:
        if profile.local.optimiser == "adam" and self.option == "II":
            raise UserError(
                "scaffold cannot read a gradient off Adam's steps: use scaffold(option='I') or local SGD"
            )

    def init_server(self, profile: Profile) -> Memory:
        return {"c": torch.zeros(profile.model.num_params)}

    def init_client(self, profile: Profile) -> Memory:
        return {"c": torch.zeros(profile.model.num_params)}

    def broadcast(self, memory: Memory) -> Memory:
        return {"c": memory["c"]}

    def anchor(self, view: View) -> Anchor:  # Alg. 1, line 10
        correction = view.down["c"] - view.mine["c"]
        return Anchor(drift=-correction) if self.mode == "niid" else Anchor(offset=correction)

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        """Alg. 1, line 12."""
        delta = trained.weights.params - begun.params
        if self.option == "I":
            c = trained.gradient(begun.params)
        else:
            reach = view.lr * trained.steps if self.mode == "niid" else trained.reach
            c = view.mine["c"] - view.down["c"] - delta / reach
        return {"delta": delta, "change": c - view.mine["c"]}, {"c": c}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return updates.shares if self.weighted else updates.even

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:  # Alg. 1, lines 16-17
        c = memory["c"] + updates.up["change"].sum(0) / len(now.members)
        return params + self.server_lr * move, {"c": c}

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """c is the mean of its members' c_k, so a new group recomputes it."""
        return {"c": mean_memory(clients, members, "c", memory["c"])}
