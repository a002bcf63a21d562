"""FedEntOpt: Lutz et al., "Boosting Federated Learning with FedEntOpt: Mitigating Label Skew by Entropy-Based
Client Selection", Algorithm 1.

Equation:
    first client: at random
    next: argmax_j H((L + l_j) / |L + l_j|_1) over clients not in the buffer,
          L: label counts of those chosen so far, H(q) = -sum_c q_c log2 q_c

Where we differ:
    - A client pushed out of the buffer may be picked again from the next round on, not in the same one; the
      pseudo-code says so, the prose leaves it open.
    - A buffer too large for the federation is shortened, with a warning, so that every round finds a full
      cohort; the pseudo-code would run out of clients.
    - Equal entropies go to the lowest number (``ties="random"``: to any of them).
    - Noise is of whole numbers and of scale 2 / epsilon. The paper's 1 / epsilon protects whether a sample is
      there, but everybody knows how many there are: what can be protected is which label one has, and that
      changes two counts. Noisy counts are clipped at zero and scaled to the number of samples, which costs no
      privacy.
    - Beyond 20,000 clients each pick looks at a random 1,024 of them (stochastic greedy), which costs less
      than a hundredth of a bit.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from fedcohort.api import (
    EQUAL,
    Hides,
    Ids,
    Memory,
    Privacy,
    Profile,
    Round,
    Selector,
    Updates,
    above,
    at_least,
    entropy,
    register,
    tune,
)

MANY, LOOKED_AT = 20_000, 1024  # of more clients than MANY, each pick looks at a random sample of these


@register
@dataclass(frozen=True)
class FedEntOpt(Selector, Hides):
    """Builds each cohort greedily so that its labels together are as uniform as possible."""

    buffer: Annotated[float, at_least(0), tune(0, 0.9)] = 0.5  # who rests after a pick: a share, or a number
    epsilon: Annotated[float, above(0)] | None = None  # differential privacy of the label counts; None: exact
    ties: Literal["lowest", "random"] = "lowest"  # who of equally good clients is picked

    def uses(self) -> frozenset[str]:
        return frozenset({"counts"})

    def privacy(self, given: Privacy) -> Privacy:
        if self.epsilon is None or given.counts == "withheld":
            return given
        tightest = min(self.epsilon, given.epsilon) if given.counts == "noised" else self.epsilon
        return replace(given, counts="noised", epsilon=tightest)

    def init_selector(self, profile: Profile) -> Memory:
        """The buffer lists the clients that rest, the latest first; -1 where it is empty."""
        counts = profile.known_counts(self.name)
        return {"counts": counts, "buffer": torch.full((profile.num_clients,), -1)}

    def capacity(self, now: Round) -> int:
        """Clients that rest; small enough that the others can fill a cohort."""
        members = len(now.members)
        wanted = round(self.buffer * members) if self.buffer < 1 else int(self.buffer)
        if wanted > members - now.cohort:
            warnings.warn(
                f"fedentopt: a buffer of {self.buffer:g} leaves too few clients for a full cohort and is "
                "shortened: lower it, or the cohort",
                RuntimeWarning,
                stacklevel=2,
            )
        return min(wanted, members - now.cohort)

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        is_free, resting = now.is_member, memory["buffer"][memory["buffer"] >= 0]
        is_free[resting[is_free[resting]][: self.capacity(now)]] = False
        free = is_free.nonzero().flatten()
        first = int(free[torch.randint(len(free), (1,), generator=now.generator("select"))])
        return torch.tensor(self.grow(first, free, memory["counts"], now.cohort, now.generator("candidates")))

    def grow(
        self,
        first: int,
        free: Ids,
        counts: Tensor,
        cohort: int,
        key: torch.Generator | None = None,
        looked_at: int | None = None,
    ) -> list[int]:
        """A cohort from ``first``, adding whoever of ``free`` (of ``looked_at`` of them, drawn for each pick;
        None: of all unless they are many) makes the labels most uniform."""
        chosen, total = [first], counts[first].clone()
        is_left = free != first
        some = looked_at or (LOOKED_AT if len(free) > MANY else 0)
        while len(chosen) < min(cohort, len(free)):
            seen = torch.randint(len(free), (some,), generator=key).unique()
            seen = seen[is_left[seen]]
            seen = seen if len(seen) else is_left.nonzero().flatten()
            even = entropy(total + counts[free[seen]])
            best = int(self._one_of(seen[even >= even.max() - EQUAL], key))
            is_left[best] = False
            total += counts[free[best]]
            chosen.append(int(free[best]))
        return chosen

    def _one_of(self, equals: Tensor, key: torch.Generator | None) -> Tensor:
        if self.ties == "lowest":
            return equals[0]
        return equals[torch.randint(len(equals), (1,), generator=key)]

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        """The chosen rest, whether or not they answered."""
        older = memory["buffer"][memory["buffer"] >= 0]
        order = torch.cat([now.selected.flip(0), older[~torch.isin(older, now.selected)]])
        buffer = torch.full_like(memory["buffer"], -1)
        buffer[: len(order)] = order
        return {**memory, "buffer": buffer}
