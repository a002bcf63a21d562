"""The laws catch methods that break them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.records import Ids, Memory, Round, Updates
from fedcohort.core.roles import Averaging, Grouping, Selector
from fedcohort.core.roles.optional import Polls
from fedcohort.models.flat import Weights
from fedcohort.testing import checks


@dataclass(frozen=True)
class Restless(Grouping):
    """Moves its models although nobody answered."""

    name: ClassVar[str] = "restless"

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        return [model._replace(params=model.params * 0.9) for model in models]


@dataclass(frozen=True)
class Padding(Selector, Polls):
    """Fills its cohort with the client of highest loss, again and again."""

    name: ClassVar[str] = "padding"

    def uses(self) -> frozenset[str]:
        return frozenset({"losses"})

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        return now.members

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        assert losses is not None
        told = now.members[losses[now.members].isfinite()]
        return (told if len(told) >= now.cohort else now.members[:1].repeat(now.cohort))[: now.cohort]


@dataclass(frozen=True)
class Crowded(Selector):
    """Chooses everybody, however few are wanted."""

    name: ClassVar[str] = "crowded"

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return now.members


@dataclass(frozen=True)
class Stubborn(Selector):
    """Draws in every round others, and in every run the same."""

    name: ClassVar[str] = "stubborn"

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        key = torch.Generator().manual_seed(now.number)
        return now.members[torch.randperm(len(now.members), generator=key)[: now.cohort]]


@dataclass(frozen=True)
class Impatient(Averaging):
    """Has no weight for clients that took fewer steps than the others."""

    name: ClassVar[str] = "impatient"

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        return torch.where(updates.steps == now.profile.local.steps_for(40), 1.0, torch.nan) / len(updates)


@pytest.mark.parametrize(
    ("part", "law", "sentence"),
    [
        (Restless(), checks.check_survives_dropout, "moved although nobody answered"),
        (Restless(), checks.check_survives_stragglers, "moved although nobody answered"),
        (Impatient(), checks.check_survives_stragglers, "with stragglers is not finite"),
        (Padding(), checks.check_survives_nonsense, "chose a client twice"),
        (Stubborn(), checks.check_repeats, "whatever the seed"),
        (Crowded(), checks.check_chooses_fairly, "more than 4"),
    ],
)
def test_a_broken_method_is_caught(part, law, sentence):
    with pytest.raises(AssertionError, match=sentence):
        law(Method.of(part))
