"""FedCor: Tang et al., "FedCor: Correlation-Based Active Client Selection Strategy for Heterogeneous
Federated Learning", CVPR 2022.

A fit needs one more federated step, with random clients on a copy of the model, and two polls of everybody.

Equation:
    changes of the loss ~ N(mean, Sigma), Sigma = X^T X + noise^2 I
    repeat: k* = argmax_k a_k (sum_i p_i Sigma_ik) / sqrt(Sigma_kk)
            Sigma <- Sigma - Sigma_k* Sigma_k*^T / Sigma_k*k*
    a_k <- beta a_k when k is chosen
    X: maximises the likelihood, changes of e rounds ago weighing gamma^e

Where we differ:
    - After the authors' code of 2023: noise is part of the covariance (in 2022 only of the score), clients
      chosen just before a fit are not discounted, and there are ``warmup + 1`` random rounds.
    - The mean of the changes is their discounted average, which maximises the likelihood whatever the
      covariance (``mean="zero"``: the code of 2022).
    - A client that was polled holds the model, and is not sent it again to rehearse or to train.
    - The authors average evenly: combine it with ``fairavg`` for that.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.api import (
    Ids,
    Memory,
    Profile,
    Rehearses,
    Round,
    Selector,
    Updates,
    above,
    at_least,
    between,
    gaussian,
    generator,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FedCor(Selector, Rehearses):
    """Learns with a Gaussian process which clients' losses fall together, and trains those who help most."""

    warmup: Annotated[int, at_least(0)] = 15  # random rounds before the first fit, and one more
    interval: Annotated[int, at_least(1)] = 10  # rounds between fits
    beta: Annotated[float, between(0, 1), tune(0.5, 1)] = 0.95  # discount of a client each time it is chosen
    gamma: Annotated[float, above(0), between(0, 1)] = 0.95  # weight of a loss change a round later
    dimensions: Annotated[int, between(1, 1000)] = 15  # of each client's embedding
    noise: Annotated[float, above(0)] = 0.01  # standard deviation of a loss change of its own
    history: Annotated[int, between(1, 100_000)] = 100  # loss changes that are remembered
    mean: Literal["history", "zero"] = "history"  # expected loss change: what was seen, or none
    first_iterations: Annotated[int, between(1, 10**6)] = 1000  # of Adam, in the fit after warm-up
    iterations: Annotated[int, between(1, 10**6)] = 100  # of Adam, in later fits
    lr: Annotated[float, above(0)] = 0.01  # of Adam

    def uses(self) -> frozenset[str]:
        return frozenset({"losses"})

    def server_bytes(self, profile: Profile) -> int:
        """The covariance of all clients, its factor, and their slopes."""
        return 4 * 8 * profile.num_clients**2

    def init_selector(self, profile: Profile) -> Memory:
        clients, key = profile.num_clients, generator(profile.seed, "embedding")
        embedding = torch.randn(clients, self.dimensions, generator=key, dtype=torch.float64)
        return {
            "embedding": embedding / self.dimensions**0.5,
            "discount": torch.ones(clients, dtype=torch.float64),
            "loss": torch.full((clients,), torch.nan),
            "changes": torch.full((self.history, clients), torch.nan, dtype=torch.float64),
            "seen": torch.zeros(self.history, dtype=torch.long),  # the round of each change
        }

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        return now.members if now.number <= self.warmup + 1 or self._refits(now) else None

    def rehearse(self, memory: Memory, now: Round) -> Ids | None:
        return now.draw("rehearse") if self._refits(now) else None

    def learn(self, memory: Memory, now: Round, losses: Tensor, rehearsed: Tensor | None) -> Memory:
        change = losses - memory["loss"] if rehearsed is None else rehearsed - losses
        memory = {
            **memory,
            "loss": losses,
            "changes": torch.cat([memory["changes"][1:], change[None].double()]),
            "seen": torch.cat([memory["seen"][1:], torch.tensor([now.number])]),
        }
        if rehearsed is None and now.number <= self.warmup:
            return memory
        steps = self.first_iterations if rehearsed is None else self.iterations
        return {
            **memory,
            "embedding": self.fit(memory, now, steps),
            "discount": torch.ones_like(memory["discount"]),
        }

    def fit(self, memory: Memory, now: Round, steps: int) -> Tensor:
        """Embeddings under which the loss changes seen so far are likelier."""
        members, weight = now.members, self.gamma ** (now.number - memory["seen"]).double()
        changes = memory["changes"][:, members]
        if self.mean == "history":
            changes = gaussian.centred(changes, weight)
        x = gaussian.fit(memory["embedding"][members], changes, weight, self.noise, steps, self.lr)
        return memory["embedding"].index_copy(0, members, x)

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        if now.number <= self.warmup:
            return now.draw("select")
        size = now.profile.size[now.members].double()
        covariance = gaussian.covariance(memory["embedding"][now.members], self.noise)
        discount = memory["discount"][now.members]
        return now.members[gaussian.most_telling(covariance, size / size.sum(), discount, now.cohort)]

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        """The chosen are discounted, whether or not they answered."""
        if now.number <= self.warmup:
            return memory
        discount = memory["discount"].clone()
        discount[now.selected] *= self.beta
        return {**memory, "discount": discount}

    def _refits(self, now: Round) -> bool:
        """Whether a fit is due: the authors fit at the end of rounds that ``interval`` divides."""
        return now.number > self.warmup + 1 and (now.number - 1) % self.interval == 0
