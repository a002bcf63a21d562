"""A federation with everything a comparison holds fixed: model, local budget, cohort, privacy, faults,
seed."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from fedcohort.augment import Augment, augmentation
from fedcohort.core.faults import Faults
from fedcohort.core.flat import Flat
from fedcohort.core.method import Method
from fedcohort.core.profile import Local, Privacy, Profile
from fedcohort.data.federation import Federation
from fedcohort.errors import UserError
from fedcohort.models import flat_model


@dataclass(frozen=True)
class Task:
    """What is trained, on whose data, under which conditions; a method says how."""

    federation: Federation
    model: Flat
    local: Local = Local()
    cohort: int | float = 0.1  # clients a round: a number, or a fraction of all clients
    privacy: Privacy = Privacy()
    faults: Faults = Faults()
    seed: int = 0

    @classmethod
    def of(
        cls,
        federation: Federation,
        model: str | Callable[..., nn.Module] = "mlp",
        settings: Mapping[str, Any] = {},
        **conditions: Any,
    ) -> "Task":
        """A task whose model is named (with ``settings``) or made by a function; ``conditions`` are the
        fields."""
        shape, classes = federation.shape, federation.num_classes
        flat = flat_model(model, shape, classes, settings, federation.vocabulary)
        return cls(federation, flat, **conditions)

    def __post_init__(self) -> None:
        whole = isinstance(self.cohort, int)
        if self.cohort < 1 if whole else not 0 < self.cohort <= 1:
            raise UserError(
                f"cohort: {self.cohort!r} must be a number of clients or a fraction between 0 and 1"
            )
        _ = self.augment  # refuses what is no image before anything is trained

    @cached_property
    def augment(self) -> Augment | None:
        """What changes training images at random, if anything shall."""
        return None if self.local.augment is None else augmentation(self.federation)

    @cached_property
    def cohort_size(self) -> int:
        eligible = int((self.federation.train.sizes > 0).sum())
        if isinstance(self.cohort, int):
            return min(self.cohort, eligible)
        return min(eligible, max(1, math.floor(self.cohort * self.federation.num_clients + 1e-9)))

    @cached_property
    def slow(self) -> set[int]:
        """The stragglers."""
        eligible = self.federation.train.sizes.nonzero().flatten()
        return self.faults.slow(eligible, self.seed)

    def profile(self, method: Method) -> Profile:
        """What this method's server side may know of the federation."""
        counts = self.federation.train.counts(self.federation.num_classes)
        return Profile(
            size=self.federation.train.sizes,
            held_out=self.federation.validation.sizes,
            counts=method.privacy(self.privacy).reveal(counts, self.seed),
            num_classes=self.federation.num_classes,
            model=self.model,
            local=self.local,
            seed=self.seed,
            summaries=self._summaries(method),
            shape=self.federation.shape,
        )

    def _summaries(self, method: Method) -> dict[str, Tensor]:
        """What parts count at every client, noised like label counts; nothing when those are withheld."""
        train, classes = self.federation.train, self.federation.num_classes
        revealed = {}
        for part in (part for part in method.parts if "summary" in part.uses()):
            every = range(train.num_clients)
            tables = torch.stack([part.summarise(*train.examples(client), classes) for client in every])
            what = f"summary of {part.name}"
            known = method.privacy(self.privacy).reveal(tables.flatten(1), self.seed, what)
            if known is not None:
                revealed[part.name] = known.view(tables.shape)
        return revealed

    def for_method(self, method: Method) -> "Task":
        """This task, or for the centralised reference the same data in one place and the same epochs in
        total."""
        if not method.pooled:
            return self
        fraction = self.cohort_size / int((self.federation.train.sizes > 0).sum())
        steps = self.local.steps
        local = replace(
            self.local,
            epochs=self.local.epochs * fraction,
            steps=None if steps is None else steps * self.cohort_size,
        )
        return replace(self, federation=self.federation.pooled(), local=local, cohort=1, faults=Faults())

    def steps_for(self, client: int, number: int, size: int | None = None) -> int:
        """The client's local budget in this round; ``size`` if it trains on fewer samples than it has."""
        size = int(self.federation.train.sizes[client]) if size is None else size
        if client in self.slow:
            return self.faults.slow_steps(client, size, self.local, self.seed, number)
        return self.local.steps_for(size)
