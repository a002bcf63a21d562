"""FeSEM: Long et al., "Multi-Center Federated Learning: Clients Clustering for Better Personalization",
World Wide Web 2023. https://arxiv.org/abs/2005.01026

``fesem+fedprox(mu=0.01)`` is the paper's variant that also pulls each client towards its centre.

Equation:
    E: group(k) = argmin_g ||x_k - c_g||^2
    M: c_g = mean of x_k over the clients of group g

Where we differ:
    - All trainable weights are compared; the authors' code takes one layer (``layers``).
    - Everybody trains one common model until enough clients are known, and K-means++ on their models gives
      the first centres; the code starts at random points.
    - A client that is not in the cohort counts with the last model it sent, which the server keeps, and one
      that never sent any not at all.
    - A cohort is drawn from everybody; ``sampling="group"`` draws one from each group, at least one client.
    - A centre without clients stays where it is; the code starts all centres anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcohort.api import (
    Averaging,
    Flat,
    Grouping,
    Memory,
    Profile,
    Round,
    Sampling,
    ServerOptimiser,
    Updates,
    Weights,
    at_least,
    join_largest,
    kmeans_groups,
    last_layer,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FeSEM(Averaging, ServerOptimiser, Grouping):
    """Expectation-maximisation: each client joins the centre nearest to its model, each centre is their
    mean."""

    groups: Annotated[int, at_least(1), tune(2, 8)] = 4  # centres
    layers: str = "all"  # whose weights are compared: all, last, or names of layers with spaces between
    weighted: bool = False  # mean by samples instead of evenly
    sampling: Sampling = "all"  # draw one cohort from everybody, or one from each group

    def server_bytes(self, profile: Profile) -> int:
        """The last model of each client, and its next value."""
        return 2 * 4 * profile.num_clients * profile.model.num_params

    def check(self, profile: Profile) -> None:
        self.compared(profile.model)

    def init_grouping(self, profile: Profile) -> Memory:
        n = profile.num_clients
        return {
            "group": torch.zeros(n, dtype=torch.long),
            "known": torch.zeros(n, dtype=torch.bool),  # who has sent a model
            "last": torch.zeros(n, profile.model.num_params),  # that model
            "begun": torch.tensor(False),  # whether there are centres
        }

    def compared(self, model: Flat) -> Tensor | slice:
        """Which parameters tell clients apart."""
        if self.layers == "all":
            return slice(None)
        return model.within([last_layer(model)[0]] if self.layers == "last" else self.layers.split())

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return torch.zeros(len(updates))  # centres are means over all known clients: see remodel

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """The E-step."""
        if not len(updates) or "delta" not in updates.up:
            return memory
        sent = torch.stack([model.params for model in now.models])[updates.group]
        last = memory["last"].index_copy(0, updates.ids, sent + updates.up["delta"])
        known = memory["known"].index_fill(0, updates.ids, True)
        seen = self.compared(now.profile.model)
        ids, group, begun = known.nonzero().flatten(), memory["group"], memory["begun"]
        if begun:
            centres = torch.stack([model.params for model in now.models])[:, seen]
            # products of matrices would be faster, but are differences of squares, which may be far larger
            mode = "donot_use_mm_for_euclid_dist"
            nearest = torch.cdist(last[:, seen], centres, compute_mode=mode).argmin(1)  # the first of equals
            group = torch.where(known, nearest, group)
        elif len(ids) >= min(self.groups, len(now.members)):
            labels = kmeans_groups(last[ids][:, seen].numpy(), self.groups, now.profile.seed)
            group = torch.from_numpy(join_largest(labels, ids.numpy(), len(group)))
            begun = torch.tensor(True)
        return {"group": group, "known": known, "last": last, "begun": begun}

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        """The M-step."""
        weight = now.profile.size if self.weighted else torch.ones_like(now.profile.size)
        own = memory["known"] & (memory["group"] == torch.arange(len(models))[:, None])
        share = weight * own
        centres = share / share.sum(1, keepdim=True) @ memory["last"]
        return [
            model._replace(params=centre) if own[number].any() else model
            for number, (model, centre) in enumerate(zip(models, centres, strict=True))
        ]
