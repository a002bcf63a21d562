"""Simulated trouble: clients that fail after they were chosen, and clients too slow for the whole budget."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.core.profile import Local
from fedcohort.util.keyed import generator
from fedcohort.util.settings import between


@dataclass(frozen=True)
class Faults:
    """What goes wrong, and how often."""

    dropout: Annotated[float, between(0, 1)] = 0.0  # share of a cohort lost after it got the model
    dropout_draw: Literal["exact", "bernoulli"] = "exact"  # round(share * cohort) clients, or each by a coin
    stragglers: Annotated[float, between(0, 1)] = 0.0  # share of all clients that are slow
    straggler_draw: Literal["fixed", "redraw"] = "fixed"  # the same budget in every round, or a new one each
    straggler_result: Literal["include", "drop"] = "include"  # keep a partial result, or treat it as lost

    def lost(self, selected: Tensor, seed: int, number: int) -> Tensor:
        """Those of ``selected`` that will not answer."""
        if not self.dropout:
            return selected[:0]
        key = generator(seed, number, "dropout")
        if self.dropout_draw == "bernoulli":
            return selected[torch.rand(len(selected), generator=key) < self.dropout]
        return selected[torch.randperm(len(selected), generator=key)[: round(self.dropout * len(selected))]]

    def slow(self, eligible: Tensor, seed: int) -> set[int]:
        """The clients designated as stragglers for the whole run."""
        order = torch.randperm(len(eligible), generator=generator(seed, "stragglers"))
        return set(eligible[order[: round(self.stragglers * len(eligible))]].tolist())

    def slow_budget(self, client: int, local: Local, seed: int, number: int) -> Local:
        """A straggler's: uniform on 1..E epochs, or on 1..steps when the budget is in steps."""
        key = (client,) if self.straggler_draw == "fixed" else (client, number)
        most = local.steps if local.steps is not None else max(1, int(local.epochs))
        drawn = int(torch.randint(1, most + 1, (1,), generator=generator(seed, "straggler", *key)))
        if local.steps is not None:
            return replace(local, steps=drawn)
        return replace(local, epochs=min(drawn, local.epochs))
