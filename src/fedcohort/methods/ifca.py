"""IFCA: Ghosh, Chung, Yin and Ramchandran, "An Efficient Framework for Clustered Federated Learning",
NeurIPS 2020. https://arxiv.org/abs/2006.04088

When it is evaluated, every client chooses anew.

Equation:
    group(k) = argmin_g F_k(x_g)
    x_g <- x_g + sum of p_k delta_k over the clients of group g
    (average="gradient": times their part of the cohort)

Where we differ:
    - The mean of a group is by samples, like every mean here; ``ifca+fairavg`` is the plain mean of the
      authors' code.
    - A model that nobody chose stays as it is.
    - All weights are each group's own; the paper's variant with a common trunk is ``sharing="trunk"``.
    - With ``every`` above 1, not in the paper, clients choose anew only in some rounds, which saves most of
      the download.
    - The models start from different random weights, because equal ones would all have the same loss and
      everybody would choose the first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.api import (
    Asks,
    Flat,
    Grouping,
    Ids,
    Memory,
    Phase,
    Profile,
    Round,
    Updates,
    Weights,
    at_least,
    last_layer,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class IFCA(Grouping, Asks):
    """Every chosen client gets all models and trains the one with the lowest loss on its own data."""

    groups: Annotated[int, at_least(1), tune(2, 8)] = 4  # models; some may end up with nobody
    sharing: Literal["nothing", "trunk"] = "nothing"  # trunk: only the last layer is each group's own
    every: Annotated[int, at_least(1)] = 1  # rounds between two choices; in others a client keeps its last
    average: Literal["model", "gradient"] = "model"  # gradient: over the whole cohort, not the group's part

    def check(self, profile: Profile) -> None:
        if self.sharing == "trunk":
            last_layer(profile.model)

    def init_grouping(self, profile: Profile) -> Memory:
        never = torch.zeros(profile.num_clients, dtype=torch.bool)
        return {**super().init_grouping(profile), "chose": never}

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        models = profile.model.inits(profile.seed, self.groups)
        first = torch.eye(self.groups)[0]
        return models if self.sharing == "nothing" else joined(models, models, first, profile.model)

    def odds(self, memory: Memory, profile: Profile) -> Tensor:
        """One cohort, of everybody: who belongs to which group is not known before it is asked."""
        return torch.ones(profile.num_clients, 1)

    def asks(self, memory: Memory, now: Round, phase: Phase) -> Ids:
        due = now.number % self.every == 0 or phase == "serving"
        return now.selected if due else now.selected[~memory["chose"][now.selected]]

    def answer(self, losses: Tensor) -> Tensor:
        return losses.mean(1).nan_to_num(torch.inf).argmin()

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        chose = memory["chose"].index_fill(0, ids, True)
        return {"group": memory["group"].index_copy(0, ids, answers), "chose": chose}

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        own = models
        if self.average == "gradient":
            share = updates.group.bincount(minlength=len(models)) / max(1, len(updates))
            own = [
                new._replace(params=old.params + part * (new.params - old.params))
                for old, new, part in zip(now.models, models, share, strict=True)
            ]
        if self.sharing == "nothing" or not len(updates):
            return own
        samples = updates.group.bincount(updates.size, minlength=len(models)).float()
        return joined(own, models, samples / samples.sum(), now.profile.model)


def joined(models: Sequence[Weights], trunks: Sequence[Weights], share: Tensor, model: Flat) -> list[Weights]:
    """Models with their own last layers on one trunk, the mean of ``trunks`` by ``share [G]``."""
    own = model.within([last_layer(model)[0]])
    trunk = share @ torch.stack([each.params for each in trunks])
    buffers = model.combine_buffers(torch.stack([each.buffers for each in trunks]), share)
    return [Weights(torch.where(own, each.params, trunk), buffers) for each in models]
