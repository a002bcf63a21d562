"""Clipping of updates: McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR
2018. https://arxiv.org/abs/1710.06963

Clipping alone hides nobody: it bounds what one client can change, which is what noise is then measured by.

Equation:
    delta_k <- delta_k min(1, norm / ||delta_k||)

Where we differ:
    - The paper also clips layer by layer; here the whole update has one norm.
    - Only the model's movement is clipped: what an objective sends beside it, like SCAFFOLD's control
      variates, and BatchNorm statistics travel as they are.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.api import Memory, Round, Transform, Updates, View, above, register, tune


@register
@dataclass(frozen=True)
class Clip(Transform):
    """Shortens a client's movement to a largest length, at the client or at the server."""

    norm: Annotated[float, above(0), tune(0.1, 10)] = 1.0  # the largest Euclidean length of a movement
    at: Literal["client", "server"] = "client"  # who shortens it: a server need not believe that clients do

    def upload(self, delta: Tensor, mine: Memory, view: View) -> tuple[Tensor, Memory]:
        return (self.clipped(delta) if self.at == "client" else delta), mine

    def receive(self, updates: Updates, memory: Memory, now: Round) -> tuple[Updates, Memory]:
        if self.at == "client":
            return updates, memory
        rows = torch.stack([self.clipped(row) for row in updates.up["delta"]])
        return updates.with_deltas(rows), memory

    def clipped(self, delta: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(delta, dtype=torch.float64)
        return delta * (self.norm / length).clamp(max=1)
