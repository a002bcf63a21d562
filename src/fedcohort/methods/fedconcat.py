"""FedConcat and FedConcat-ID: Diao, Li and He, "Exploiting Label Skews in Federated Learning with Model
Concatenation", AAAI 2024. https://arxiv.org/abs/2312.06290

The result is one model for everybody. With ``inferred`` no label counts are sent: in the first round
everybody trains, and the server reads off the answers of each model to random noise which labels it was
trained on.

Equation:
    groups: K-means on n_kc / n_k
    x_g <- x_g + sum_k p_k delta_k        (in each group, for ``rounds`` rounds)
    then logits = W [e_1(input), ..., e_G(input)] + b,
         e_g: the frozen model of group g without its last layer,
         (W, b) <- (W, b) + (1 / |S|) sum_k delta_k, ``steps`` mini-batches each

Where we differ:
    - A cohort is drawn from everybody, so that a group may go a round without training (``sampling="group"``
      draws from each).
    - Encoders are used as in evaluation, so that BatchNorm stays as it was; in the authors' code it drifts.
    - K-means takes the best of ten starts, here and wherever it is used; the code says nothing of them.
    - What becomes of a decaying learning rate when the layer's training starts is not said: it starts anew.
      Carried on, it would be too small by then to train anything.
    - With 100 classes and more the code lets no group have more than 1.2 times its equal share of clients
      (``capacity=1.2``).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from fedcohort.api import (
    Averaging,
    Grouping,
    Memory,
    Merge,
    Merges,
    Profile,
    Round,
    Sampling,
    Updates,
    Weights,
    at_least,
    between,
    capped_groups,
    generator,
    join_largest,
    kmeans_groups,
    last_layer,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FedConcat(Averaging, Grouping, Merges):
    """Trains a model for each group of clients with similar labels, then one linear layer on top of all."""

    groups: Annotated[int, at_least(1), tune(2, 8)] = 5  # models to put side by side
    rounds: Annotated[int, at_least(1)] = 50  # that train them; all later ones train the layer on top
    steps: Annotated[int, between(1, 10**7)] = 3  # mini-batches of a client in each of those later rounds
    top: Literal["random", "joined"] = "random"  # how that layer starts; joined: as the sum of the groups'
    inferred: bool = False  # infer labels from the first round's models instead of asking for counts
    noise: Annotated[int, between(1, 10**6)] = 10_000  # random examples that they are inferred from
    capacity: Annotated[float, at_least(1)] | None = None  # most clients of a group, over an equal share
    sampling: Sampling = "all"  # draw one cohort from everybody, or one from each group

    def uses(self) -> frozenset[str]:
        return frozenset() if self.inferred else frozenset({"counts"})

    def server_bytes(self, profile: Profile) -> int:
        """With a capacity, what each client would cost in each place of each group."""
        return 0 if self.capacity is None else int(2 * 8 * self.capacity * profile.num_clients**2)

    def check(self, profile: Profile) -> None:
        last_layer(profile.model)

    def init_grouping(self, profile: Profile) -> Memory:
        group = np.zeros(profile.num_clients, dtype=np.int64)
        if not self.inferred:
            counts = profile.known_counts(self.name).numpy()
            known = np.flatnonzero((counts.sum(1) > 0) & (profile.size.numpy() > 0))
            shares = counts[known] / counts[known].sum(1, keepdims=True)
            group = join_largest(self.cluster(shares, profile.seed), known, len(counts))
        return {"group": torch.from_numpy(group), "placed": torch.tensor(not self.inferred)}

    def cluster(self, shares: np.ndarray, seed: int) -> np.ndarray:
        """The group of each client with these labels."""
        if self.capacity is None or not len(shares):
            return kmeans_groups(shares, self.groups, seed)
        equal = len(shares) / min(self.groups, len(shares))
        room = math.ceil(equal)  # with less there is none for everybody
        most = max(room, math.floor(self.capacity * equal + 1e-9))
        return capped_groups(shares, self.groups, min(len(shares), most), seed)

    def calls_all(self, memory: Memory, group: int) -> bool:
        return not memory["placed"]

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        if memory["placed"] or not len(updates) or "delta" not in updates.up:
            return memory
        shares = self.infer(now.models[0].params + updates.up["delta"], updates.buffers, now.profile)
        labels = self.cluster(shares.numpy(), now.profile.seed)
        group = join_largest(labels, updates.ids.numpy(), now.profile.num_clients)
        return {"group": torch.from_numpy(group), "placed": torch.tensor(True)}

    def infer(self, params: Tensor, buffers: Tensor, profile: Profile) -> Tensor:
        """``[S, C]``: the mean answer of each model to the same noise."""
        noise = torch.rand(self.noise, *profile.shape, generator=generator(profile.seed, "noise"))
        with torch.no_grad():
            answers = [
                profile.model.logits(Weights(*own), noise).softmax(1).mean(0)
                for own in zip(params, buffers, strict=True)
            ]
        return torch.stack(answers)

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        """By samples in the groups, evenly on top of them."""
        return updates.shares if now.number < self.rounds else updates.even

    def merges(self, number: int) -> Merge | None:
        return Merge(self.steps, self.top == "joined") if number >= self.rounds else None
