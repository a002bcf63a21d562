"""A federation with everything a comparison holds fixed: model, local budget, cohort, privacy, faults,
seed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import nn

from fedcohort.core.disclosure import Disclosed, disclose
from fedcohort.core.faults import Faults
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy, Profile
from fedcohort.data.augment import Augment, augmentation
from fedcohort.data.federation import Federation
from fedcohort.data.revealed import Revealed
from fedcohort.models import flat_model
from fedcohort.models.flat import Flat
from fedcohort.util.errors import UserError


@dataclass(frozen=True)
class Task:
    """What is trained, on whose data, under which conditions; a method says how."""

    federation: Federation | Revealed  # of simulated clients, or what is known of those that are elsewhere
    model: Flat
    local: Local = Local()
    cohort: int | float = 0.1  # clients a round: a number, or a fraction of all clients
    privacy: Privacy = Privacy()
    faults: Faults = Faults()
    seed: int = 0
    began: int = 0  # the round in which the schedule of the learning rate starts
    disclosed: Disclosed | None = None  # by clients that are elsewhere; None: simulated ones are asked

    @classmethod
    def of(
        cls,
        federation: Federation,
        model: str | nn.Module | Callable[..., nn.Module] = "mlp",
        settings: Mapping[str, Any] = {},
        **conditions: Any,
    ) -> "Task":
        """A task whose model is named (with ``settings``), a module, or made by a function or class;
        ``conditions`` are the fields. A module is copied: yours stays as it is."""
        shape, classes = federation.shape, federation.num_classes
        flat = flat_model(model, shape, classes, settings, federation.vocabulary)
        return cls(federation, flat, **conditions)

    def __post_init__(self) -> None:
        refuse_cohort(self.cohort)
        fewer = self.local.steps is not None or self.local.epochs >= 2
        if self.faults.stragglers and self.faults.straggler_result == "include" and not fewer:
            raise UserError(
                "faults.stragglers: slow clients do fewer epochs, but nobody does more than one: "
                "set local.epochs to 2 or more, or faults.straggler_result to 'drop'"
            )
        _ = self.augment  # refuses what is no image before anything is trained

    @property
    def data(self) -> Federation:
        """The examples, where they are here."""
        if isinstance(self.federation, Revealed):
            raise UserError("the examples of real clients stay where they are")
        return self.federation

    @cached_property
    def augment(self) -> Augment | None:
        """What changes training images at random, if anything does."""
        return None if self.local.augment is None else augmentation(self.data)

    @cached_property
    def cohort_size(self) -> int:
        eligible = int((self.federation.sizes[0] > 0).sum())
        return cohort_size(self.cohort, self.federation.num_clients, eligible)

    @cached_property
    def slow(self) -> set[int]:
        """The stragglers."""
        eligible = self.federation.sizes[0].nonzero().flatten()
        return self.faults.slow(eligible, self.seed)

    def profile(self, method: Method) -> Profile:
        """What this method's server side may know of the federation."""
        told = self.disclosed or disclose(self.data, method, self.privacy, self.seed)
        return Profile(
            size=self.federation.sizes[0],
            held_out=self.federation.sizes[1],
            counts=told.counts,
            num_classes=self.federation.num_classes,
            model=self.model,
            local=self.local,
            seed=self.seed,
            summaries=told.summaries,
            shape=self.federation.shape,
            began=self.began,
            cohort=self.cohort_size,
            scaled=self.federation.scale is not None,
        )

    def for_method(self, method: Method) -> "Task":
        """This task; for a method that trains on everything, validation data are training data; for the
        centralised reference, the same data are in one place, with the same epochs in total."""
        if method.everything:
            self = replace(self, federation=self.federation.without_validation())
        if not method.pooled:
            return self
        fraction = self.cohort_size / int((self.federation.sizes[0] > 0).sum())
        steps = self.local.steps
        local = replace(
            self.local,
            epochs=self.local.epochs * fraction,
            steps=None if steps is None else steps * self.cohort_size,
            bn="average" if self.local.bn == "local" else self.local.bn,  # everybody is served by the one
        )
        return replace(self, federation=self.data.pooled(), local=local, cohort=1, faults=Faults())

    def local_at(self, number: int) -> Local:
        """Everybody's local budget in this round, stragglers' aside."""
        return self.local.at(number - self.began)

    def budget(self, client: int, number: int) -> Local:
        """The client's local budget in this round."""
        budget = self.local_at(number)
        slow = client in self.slow
        return self.faults.slow_budget(client, budget, self.seed, number) if slow else budget


def refuse_cohort(cohort: int | float) -> None:
    """Raises UserError for what is neither a number of clients nor a share of them."""
    if cohort < 1 if isinstance(cohort, int) else not 0 < cohort <= 1:
        raise UserError(f"cohort: {cohort!r} must be a number of clients or a fraction between 0 and 1")


def cohort_size(cohort: int | float, clients: int, eligible: int) -> int:
    """How many of all clients train a round, if so many of them have anything to train on."""
    refuse_cohort(cohort)
    if isinstance(cohort, int):
        return min(cohort, eligible)
    return min(eligible, max(1, math.floor(cohort * clients + 1e-9)))
