"""Power-of-Choice: Cho, Wang and Joshi, "Towards Understanding Biased Client Selection in Federated
Learning", AISTATS 2022. https://arxiv.org/abs/2010.01243

Equation:
    A = d clients drawn one after the other with odds n_k
    cohort = the m clients of highest F_k(x) in A

Where we differ:
    - The first cohort is chosen like every other; the authors' code draws it uniformly
      (``first_round="uniform"``).
    - Equal losses go to the lowest number; among clients that rpow-d has never seen the draw decides.
    - adapow-d shrinks d to the cohort while training goes on; how is not stated, here evenly from the first
      round to ``until``.
    - The authors aggregate evenly: combine it with ``fairavg`` for that.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from fedcohort.api import Ids, Memory, Polls, Profile, Round, Selector, Updates, UserError, at_least, register


@register
@dataclass(frozen=True)
class PowerOfChoice(Selector, Polls):
    """Draws d clients by their samples and trains those of highest loss among them."""

    heeds_odds: ClassVar[bool] = True

    d: Annotated[int, at_least(1)] | None = None  # clients drawn; None: twice the cohort
    variant: Literal["pow-d", "cpow-d", "rpow-d"] = "pow-d"  # loss on all data, on a batch, or last reported
    until: Annotated[int, at_least(1)] | None = None  # round by which d has shrunk to the cohort (adapow-d)
    d_policy: Literal["error", "clip"] = "error"  # if d is below the cohort: refuse, or draw the cohort
    first_round: Literal["loss", "uniform"] = "loss"  # how the first cohort is chosen

    def uses(self) -> frozenset[str]:
        return frozenset({"loss" if self.variant == "rpow-d" else "losses"})

    def init_selector(self, profile: Profile) -> Memory:
        return {"loss": torch.full((profile.num_clients,), torch.inf)} if self.variant == "rpow-d" else {}

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        if self.variant == "rpow-d" or self._is_uniform(now):
            return None
        return self._draw(now).sort().values

    def poll_samples(self, now: Round) -> int | None:
        return now.profile.local.batch if self.variant == "cpow-d" else None

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        if self._is_uniform(now):
            return now.draw("select")
        if losses is None:
            return self.highest(memory["loss"], self._draw(now), now.cohort)
        return self.highest(losses, losses.isfinite().nonzero().flatten(), now.cohort)

    def highest(self, loss: Tensor, drawn: Ids, cohort: int) -> Ids:
        """The ``cohort`` clients of highest loss; equal ones in the order in which they were drawn."""
        order = loss[drawn].double().round(decimals=12).argsort(descending=True, stable=True)
        return drawn[order[:cohort]]

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        if self.variant != "rpow-d" or not len(updates):
            return memory
        return {"loss": updates.with_losses(memory["loss"])}

    def _draw(self, now: Round) -> Ids:
        """d members, each next one with odds proportional to its samples."""
        d = self._d(now)
        if d < now.cohort and self.d_policy == "error":
            raise UserError(
                f"power_of_choice draws d={d} clients, fewer than the cohort of {now.cohort}: "
                "raise d, or set d_policy='clip' to draw the cohort by samples alone"
            )
        wanted = min(max(d, now.cohort), len(now.members))
        return now.draw("candidates", now.profile.size[now.members], wanted)

    def _d(self, now: Round) -> int:
        """How many this round draws."""
        d = 2 * now.cohort if self.d is None else self.d
        if self.until is None or d <= now.cohort:
            return d
        left = max(0, self.until - now.number)
        return now.cohort - (now.cohort - d) * left // self.until  # rounded up

    def _is_uniform(self, now: Round) -> bool:
        return self.first_round == "uniform" and now.number == 0
