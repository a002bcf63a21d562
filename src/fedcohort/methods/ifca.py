"""IFCA: Ghosh, Chung, Yin and Ramchandran, "An Efficient Framework for Clustered Federated Learning",
NeurIPS 2020. https://arxiv.org/abs/2006.04088

Where the paper leaves a choice: the mean of a group is by samples, like every mean here (``ifca+fairavg`` is
the plain mean of the authors' code); a model that nobody chose stays as it is. The models start from
different random weights, because equal ones would all have the same loss and everybody would choose the
first. When it is evaluated, every client chooses anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedcohort.core.flat import Weights
from fedcohort.core.method import register
from fedcohort.core.parts import Grouping, Ids, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.settings import at_least


@register
@dataclass(frozen=True)
class IFCA(Grouping):
    """Every chosen client gets all models and trains the one with the lowest loss on its own data."""

    also_sends: ClassVar[str] = "all groups' models down instead of one, the number of the chosen one up"

    groups: Annotated[int, at_least(1)] = 4  # models; some may end up with nobody
    average: Literal["model", "gradient"] = "model"  # gradient: over the whole cohort, not the group's part

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        return profile.model.inits(profile.seed, self.groups)

    def odds(self, memory: Memory, profile: Profile) -> Tensor:
        """One cohort, of everybody: who belongs to which group is not known before it is asked."""
        return torch.ones(profile.num_clients, 1)

    def asks(self, memory: Memory, now: Round) -> Ids:
        return now.selected

    def answer(self, losses: Tensor) -> Tensor:
        return losses.mean(1).nan_to_num(torch.inf).argmin()

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        return {**memory, "group": memory["group"].index_copy(0, ids, answers)}

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        if self.average == "model":
            return models
        share = updates.group.bincount(minlength=len(models)) / max(1, len(updates))
        return [
            new._replace(params=old.params + part * (new.params - old.params))
            for old, new, part in zip(now.models, models, share, strict=True)
        ]
