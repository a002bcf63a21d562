"""Top-k sparsification with error feedback: Stich, Cordonnier and Jaggi, "Sparsified SGD with Memory",
NeurIPS 2018. https://arxiv.org/abs/1809.07599

Equation:
    a_k = delta_k + e_k
    sent: the k entries of a_k that are largest in size, k = ceil(share P)
    e_k <- a_k - what was sent

Where we differ:
    - The paper sparsifies every gradient step; here it is what a client's whole round moved.
    - e_k waits at the client until it trains again, however many rounds later. Where an update is lost on its
      way or judged out, so is what e_k learned of that round.
    - An entry takes eight bytes, four for its place, so that less is sent only for a share below one half.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from fedcohort.api import Memory, Profile, Transform, View, above, at_most, register

ROUNDING = 1e-9  # 0.07 of 100 are 7


@register
@dataclass(frozen=True)
class TopK(Transform):
    """Sends the largest entries of a client's movement; what it leaves out it adds to the next one."""

    share: Annotated[float, above(0), at_most(1)] = 0.1  # of the model's parameters that is sent
    feedback: bool = True  # remember what was left out

    def init_client(self, profile: Profile) -> Memory:
        return {"error": torch.zeros(profile.model.num_params)} if self.feedback else {}

    def upload(self, delta: Tensor, mine: Memory, view: View) -> tuple[Tensor, Memory]:
        whole = delta + mine["error"] if self.feedback else delta
        largest = self.largest(whole)
        sent = torch.zeros_like(whole).index_copy(0, largest, whole[largest])
        return sent, {"error": whole - sent} if self.feedback else mine

    def encode(self, update: Memory) -> Memory:
        if "places" in update:  # of the first of several
            return update
        delta, rest = update["delta"], {key: value for key, value in update.items() if key != "delta"}
        places = self.largest(delta).sort().values
        return {"values": delta[places], "places": places.int(), **rest}

    def decode(self, update: Memory, params: int) -> Memory:
        if "places" not in update:
            return update
        values, places = update["values"], update["places"].long()
        if not self.are_places(places, params):
            raise ValueError("places are not those of parameters, in ascending order")
        rest = {key: value for key, value in update.items() if key not in ("values", "places")}
        return {"delta": torch.zeros(params, device=values.device).index_copy(0, places, values), **rest}

    def are_places(self, places: Tensor, params: int) -> bool:
        return bool((places.diff() > 0).all()) and int(places[0]) >= 0 and int(places[-1]) < params

    def largest(self, delta: Tensor) -> Tensor:
        count = max(1, math.ceil(self.share * len(delta) - ROUNDING))
        return delta.abs().topk(count).indices
