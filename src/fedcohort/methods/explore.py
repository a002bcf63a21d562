"""The sampling of FedGWC: Licciardi et al., "Interaction-Aware Gaussian Weighting for Clustered Federated
Learning", ICML 2025.

Equation:
    P(next = k) proportional to exp(-c_k),
    c_k: how often k was chosen since its group last changed

Where we differ:
    The paper speaks of uniform sampling adjusted towards rarely sampled clients and gives no formula; the
    released code has this one but never counts. Here it counts.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fedcohort.api import Ids, Memory, Profile, Round, Selector, Updates, register

LOWEST = -50.0  # exponents below this would soon be zero, and zero odds cannot be drawn


@register
@dataclass(frozen=True)
class Explore(Selector):
    """Draws clients at random, those that trained rarely much sooner than the others."""

    heeds_odds: ClassVar[bool] = True

    def init_selector(self, profile: Profile) -> Memory:
        clients = profile.num_clients
        return {"times": torch.zeros(clients), "members": torch.zeros(clients, dtype=torch.bool)}

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return now.draw("select", exploring_odds(_times(memory, now)[now.members]))

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        """The chosen count as sampled, whether or not they answered."""
        times = _times(memory, now).clone()
        times[now.selected] += 1
        return {"times": times, "members": now.is_member}


def exploring_odds(times: Tensor) -> Tensor:
    """exp(fewest - times), as shares that sum to one."""
    odds = torch.exp((times.min() - times).double().clamp(min=LOWEST))
    return odds / odds.sum()


def _times(memory: Memory, now: Round) -> Tensor:
    same = bool(memory["members"].equal(now.is_member))
    return memory["times"] if same else torch.zeros_like(memory["times"])
