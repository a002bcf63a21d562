"""Averaging and server optimiser in one class, as methods written for 0.1.0 have them."""

import warnings
from typing import Any

from fedcohort.core.profile import Profile
from fedcohort.core.records import Memory
from fedcohort.core.roles.averaging import Averaging
from fedcohort.core.roles.server_optimiser import ServerOptimiser


class Aggregator(Averaging, ServerOptimiser):
    """Works for one more version: name :class:`Averaging`, :class:`ServerOptimiser` or both instead."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        warnings.warn(
            f"{cls.__name__}: Aggregator goes with the next version; a part that has 'weights' is an "
            "Averaging, one that has 'step' is a ServerOptimiser, and 'init_aggregator' is 'init_server'",
            FutureWarning,
            stacklevel=2,
        )

    def init_aggregator(self, profile: Profile) -> Memory:
        return {}

    def init_server(self, profile: Profile) -> Memory:
        return self.init_aggregator(profile)
