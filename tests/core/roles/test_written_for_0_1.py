"""Parts written for 0.1.0, where an aggregator averaged and stepped, and every role had all hooks."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedcohort.core.method import Method, register
from fedcohort.core.profile import Profile
from fedcohort.core.records import Ids, Memory, Round, Updates
from fedcohort.core.roles import Aggregator, Averaging, Objective, Selector, ServerOptimiser, Transform
from fedcohort.core.roles.optional import Polls, TellsIID, adopt_hooks
from fedcohort.core.state import pack, renamed, unpack
from fedcohort.testing import play, tiny_task
from fedcohort.testing.tiny import assert_same
from fedcohort.util.errors import UserError
from support.toy import Cohorts, play_method, position, toy_task

with pytest.warns(FutureWarning, match="Fading: Aggregator goes with the next version"):

    @dataclass(frozen=True)
    class Fading(Aggregator):
        """Each round counts half as much as the one before: its weights depend on what its steps remember."""

        name: ClassVar[str] = "fading"

        def init_aggregator(self, profile: Profile) -> Memory:
            return {"factor": torch.tensor(1.0)}

        def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
            return updates.even * memory["factor"]

        def step(
            self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
        ) -> tuple[Tensor, Memory]:
            return params + move, {"factor": memory["factor"] / 2}


def test_an_aggregator_averages_and_steps_with_one_memory():
    """Client 0 alone, b = 3, two steps of .1: 1 -> 1.38, then half of the way to 3 - 1.62 * .81 = 1.6878."""
    method = Method.of(Cohorts(((0,),)), Fading())
    first, second = play_method(method, toy_task(), 2)
    assert position(first) == pytest.approx(1.38, abs=1e-6)
    assert position(second) == pytest.approx(1.38 + (1.6878 - 1.38) / 2, abs=1e-5)
    assert list(method.at_server) == ["optimiser"]
    assert float(second.groups[0].known("optimiser")["factor"]) == 0.25


def test_a_hook_of_old_is_still_called():
    @dataclass(frozen=True)
    class Nosy(Selector):
        """Asks everybody and takes who loses most."""

        name: ClassVar[str] = "nosy"

        def uses(self) -> frozenset[str]:
            return frozenset({"losses"})

        def candidates(self, memory: Memory, now: Round) -> Ids | None:
            return now.members

        def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
            assert losses is not None, "nobody was polled"
            return losses.nan_to_num(-1).argsort(descending=True)[: now.cohort]

    with pytest.warns(FutureWarning, match=r"Nosy has 'candidates': .* inherit from fedcohort.api.Polls"):
        adopt_hooks(Nosy)
    assert issubclass(Nosy, Polls)
    _, (report,) = play(Method.of(Nosy()), tiny_task(), 1)
    assert len(report.answered) == 4


def test_a_field_with_the_name_of_a_hook_is_none():
    @dataclass(frozen=True)
    class Counting(Averaging):
        iid: bool = True

    adopt_hooks(Counting)
    assert not issubclass(Counting, TellsIID)


def test_a_transform_has_no_other_role():
    with pytest.raises(UserError, match="Both: a transform has no other role"):

        @register
        class Both(Transform, Averaging):
            pass


def test_a_hook_is_ones_own_only_where_a_part_defines_it():
    class Plain(Averaging, ServerOptimiser):
        pass

    class Own(Plain):
        def init_server(self, profile):
            return {}

    assert not Plain().has_own("init_server")
    assert Own().has_own("init_server")


def test_a_hook_that_is_no_more_is_named():
    class Turning(Objective):
        def correct(self, gradient, params, view):
            return -gradient

    with pytest.raises(UserError, match="Turning has 'correct', which nobody calls any more"):
        adopt_hooks(Turning)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("scaffold", "optimiser"),
        ("cafa", "averaging"),
        ("fedadam", "optimiser"),
        ("clust_psi_pfl+fedavgm", "optimiser"),  # several groups
    ],
)
def test_a_checkpoint_of_old_goes_on(text, place):
    method, task = Method.parse(text), tiny_task()
    half = play(method, task, 2)[0]
    old = {key.replace(f"/server/{place}/", "/aggregator/"): value for key, value in pack(half).items()}
    assert any("/aggregator/" in key for key in old)
    ours = play(method, task, 2, unpack(renamed(old, method)))[0]
    theirs = play(method, task, 2, half)[0]
    assert_same(ours, theirs, f"{text} after a restart")
