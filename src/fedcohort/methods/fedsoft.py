"""FedSoft: Ruan and Joe-Wong, "FedSoft: Soft Clustered Federated Learning with Proximal Local Updating",
AAAI 2022. https://arxiv.org/abs/2112.06053

It needs a selector that draws by odds; one with a rule of its own would ignore whom a centre fits.

Equation:
    u_ks = max(share of client k's samples that centre c_s serves best, floor)
    v_sk = u_ks n_k / sum_i u_is n_i      (odds of k being drawn for centre s)
    client: minimise F_k(y) + (strength / 2) sum_s u_ks ||y - c_s||^2,
            from its own last model
    c_s <- the plain mean of the models of the clients drawn for s

Where we differ:
    - The server, which knows a client's importance weights, sends it their weighted mean of the centres
      instead of all centres; the gradient is the same.
    - The cohort of a round is shared out among the centres, so that FedSoft trains about as many clients as
      other methods do.
    - The code raises only zeros to the floor (``zeros_only=True``); importance is not normalised again in
      either.
    - When the cohort is everybody, everybody trains for every centre: there is no sampling to account for
      importance then, so that it enters the mean, c_s = sum_k v_sk x_k.
    - The local optimiser starts anew in every round; the authors' keeps its moments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from fedcohort.api import (
    Anchor,
    Asks,
    Averaging,
    Grouping,
    Ids,
    Memory,
    Objective,
    Phase,
    Profile,
    Round,
    ServerOptimiser,
    Tailors,
    Trained,
    Updates,
    View,
    Weights,
    above,
    at_least,
    register,
    tune,
)


@register
@dataclass(frozen=True)
class FedSoft(Objective, Averaging, ServerOptimiser, Grouping, Asks, Tailors):
    """Every client has its own model, pulled towards each centre as strongly as that centre fits its data."""

    personal: ClassVar[bool] = True
    sent_as_it_is: ClassVar[str] = "it is a whole model, not what training moved"
    shared: ClassVar[bool] = True

    groups: Annotated[int, at_least(1), tune(2, 8)] = 5  # centres
    strength: Annotated[float, at_least(0), tune(1e-3, 1)] = 0.1  # lambda, of the pull towards the centres
    floor: Annotated[float, above(0)] = 1e-4  # sigma, the least importance of a centre for a client
    zeros_only: bool = False  # raise only an importance of exactly zero, as the authors' code does
    every: Annotated[int, at_least(1)] = 2  # rounds between two estimates of importance

    def init_grouping(self, profile: Profile) -> Memory:
        importance = torch.full((profile.num_clients, self.groups), self.floor)
        return {"group": torch.zeros(profile.num_clients, dtype=torch.long), "importance": importance}

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        return profile.model.inits(profile.seed, self.groups)

    def init_client(self, profile: Profile) -> Memory:
        return profile.model.init(profile.seed)._asdict()

    def asks(self, memory: Memory, now: Round, phase: Phase) -> Ids:
        due = phase == "before" and now.number % self.every == 0
        return now.members if due else now.members[:0]

    def answer(self, losses: Tensor) -> Tensor:
        """How many samples each centre serves best."""
        return losses.nan_to_num(torch.inf).argmin(0).bincount(minlength=len(losses))

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        share = answers / answers.sum(1, keepdim=True)
        low = share == 0 if self.zeros_only else share < self.floor
        importance = torch.where(low, self.floor, share)
        group = memory["group"].index_copy(0, ids, importance.argmax(1))
        return {"group": group, "importance": memory["importance"].index_copy(0, ids, importance)}

    def odds(self, memory: Memory, profile: Profile) -> Tensor:
        """v: a client's share of a centre's samples."""
        samples = memory["importance"].double() * profile.size[:, None]
        return samples / samples.sum(0)

    def cohort(self, members: int, profile: Profile) -> int:
        if profile.share >= 1:
            return members
        return min(members, max(1, round(profile.share / self.groups * members)))

    def tailor(self, memory: Memory, client: int, models: Sequence[Weights]) -> Memory:
        importance = memory["importance"][client]
        total = importance.sum()
        centre = importance / total @ torch.stack([model.params for model in models])
        return {"params": centre, "pull": self.strength * total}

    def anchor(self, view: View) -> Anchor:
        return Anchor(pull=float(view.down["pull"]))

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        """The model goes up whole: several centres take their mean of it."""
        return {"delta": trained.weights.params}, trained.weights._asdict()

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        if now.odds is None or len(now.selected) < len(now.members):  # all alike, or drawn by importance
            return updates.even
        odds = now.odds[torch.isin(now.members, updates.ids)]
        return odds / odds.sum()

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        return move, memory
