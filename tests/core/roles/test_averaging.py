"""An averaging that remembers: what it learns from a round counts in the next, and survives a checkpoint."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory, Round, Updates
from fedcohort.core.roles import Averaging, ServerOptimiser
from fedcohort.core.state import pack, unpack
from fedcohort.methods.fedavgm import FedAvgM
from fedcohort.testing import play, tiny_task
from support.toy import Cohorts, play_method, position, toy_task


@dataclass(frozen=True)
class Smooth(Averaging):
    """A client weighs half of what it weighed last, and half of its share."""

    name: ClassVar[str] = "smooth"

    def init_server(self, profile: Profile) -> Memory:
        return {"last": torch.zeros(profile.num_clients)}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return (memory["last"][updates.ids] + updates.even) / 2

    def remember(self, memory: Memory, weights: Tensor, updates: Updates, now: Round) -> Memory:
        return {"last": memory["last"].index_copy(0, updates.ids, weights)}


@dataclass(frozen=True)
class SmoothSteps(Smooth, ServerOptimiser):
    """The same as a part that steps as well: both have one memory."""

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        return params + move, {"last": memory["last"] * 1.0}


@pytest.mark.parametrize(("part", "place"), [(Smooth(), "averaging"), (SmoothSteps(), "optimiser")])
def test_weights_follow_what_was_remembered(part: Averaging, place: str) -> None:
    """Client 0 alone, b = 3, two steps of .1 go .19 of the way to 3: 1 -> 1 + .38 / 2, then 3 / 4 of it."""
    first, second = play_method(Method.of(Cohorts(((0,),)), part), toy_task(), 2)
    assert position(first) == pytest.approx(1.19, abs=1e-6)
    assert position(second) == pytest.approx(1.19 + 0.75 * 0.19 * (3 - 1.19), abs=1e-5)
    assert float(second.groups[0].known(place)["last"][0]) == 0.75


def test_a_run_goes_on_from_a_checkpoint_to_the_bit() -> None:
    method, task = Method.of(Smooth(), FedAvgM()), tiny_task()
    whole, _ = play(method, task, 4)
    half, _ = play(method, task, 2)
    resumed, _ = play(method, task, 2, unpack(pack(half)))
    ours, theirs = pack(resumed), pack(whole)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    early, late = (state.groups[0].known("averaging")["last"] for state in (half, whole))
    assert not torch.equal(early, late)
