"""FeSEM: Long et al., "Multi-Center Federated Learning: Clients Clustering for Better Personalization",
World Wide Web 2023. https://arxiv.org/abs/2005.01026

``fesem+fedprox(mu=0.01)`` is the paper's variant that also pulls each client towards its centre.

Where the paper leaves a choice: all trainable weights are compared (the authors' code takes one layer);
everybody trains one common model until enough clients are known, and K-means++ on their models gives the
first centres (the code starts at random points); a client that is not in the cohort counts with the last
model it sent, which the server keeps, and one that never sent any not at all; a centre without clients
stays where it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcohort.cluster import join_largest, kmeans_groups
from fedcohort.core.flat import Weights
from fedcohort.core.method import register
from fedcohort.core.parts import Aggregator, Grouping, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.settings import at_least
from fedcohort.errors import UserError

LARGEST = 1 << 30  # numbers the server may keep: 4 GB


@register
@dataclass(frozen=True)
class FeSEM(Aggregator, Grouping):
    """Expectation-maximisation: each client joins the centre nearest to its model, each centre is their
    mean."""

    groups: Annotated[int, at_least(1)] = 4  # centres
    weighted: bool = False  # mean by samples instead of evenly

    def check(self, profile: Profile) -> None:
        if profile.num_clients * profile.model.num_params > LARGEST:
            raise UserError(
                f"fesem keeps the last model of each of {profile.num_clients} clients, more than 4 GB here: "
                "choose a smaller model or ifca, which keeps none"
            )

    def init_grouping(self, profile: Profile) -> Memory:
        n = profile.num_clients
        return {
            "group": torch.zeros(n, dtype=torch.long),
            "known": torch.zeros(n, dtype=torch.bool),  # who has sent a model
            "last": torch.zeros(n, profile.model.num_params),  # that model
            "begun": torch.tensor(False),  # whether there are centres
        }

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return torch.zeros(len(updates))  # centres are means over all known clients: see remodel

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """The E-step."""
        if not len(updates) or "delta" not in updates.up:
            return memory
        sent = torch.stack([model.params for model in now.models])[updates.group]
        last = memory["last"].index_copy(0, updates.ids, sent + updates.up["delta"])
        known = memory["known"].index_fill(0, updates.ids, True)
        ids, group, begun = known.nonzero().flatten(), memory["group"], memory["begun"]
        if begun:
            nearest = squared_distances(last[ids], now.models).argmin(1)  # the first of equals
            group = group.index_copy(0, ids, nearest)
        elif len(ids) >= min(self.groups, len(now.members)):
            labels = kmeans_groups(last[ids].numpy(), self.groups, now.profile.seed)
            group = torch.from_numpy(join_largest(labels, ids.numpy(), len(group)))
            begun = torch.tensor(True)
        return {"group": group, "known": known, "last": last, "begun": begun}

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        """The M-step."""
        weight = now.profile.size if self.weighted else torch.ones_like(now.profile.size)
        centres = []
        for number, model in enumerate(models):
            own = (memory["known"] & (memory["group"] == number)).nonzero().flatten()
            share = weight[own] / weight[own].sum()
            centres.append(model._replace(params=share @ memory["last"][own]) if len(own) else model)
        return centres


def squared_distances(points: Tensor, centres: Sequence[Weights]) -> Tensor:
    """``[points, centres]``."""
    return torch.stack([(points - centre.params).pow(2).sum(1) for centre in centres], 1)
