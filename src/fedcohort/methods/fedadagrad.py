"""FedAdagrad: Reddi et al., "Adaptive Federated Optimization", ICLR 2021. https://arxiv.org/abs/2003.00295

Where the paper leaves a choice: clients weigh by their samples, as in its experiments; Algorithm 2 averages
evenly.
"""

from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from fedcohort.core.method import register
from fedcohort.core.parts import Aggregator, Memory, Round, Updates
from fedcohort.core.profile import Profile
from fedcohort.core.settings import above, between
from fedcohort.methods import _fedopt


@register
@dataclass(frozen=True)
class FedAdagrad(Aggregator):
    """FedAvg whose server divides its step by the root of all squared movements so far."""

    server_lr: Annotated[float, above(0)] = 0.1  # length of the server's step
    beta1: Annotated[float, between(0, 1)] = 0.0  # share of the last direction that is kept
    tau: Annotated[float, above(0)] = 1e-3  # keeps small denominators away from zero
    v0: _fedopt.Start = "tau2"  # the second moment's start: tau squared (the paper), or zero (its code)

    def init_aggregator(self, profile: Profile) -> Memory:
        return _fedopt.start(profile, self.v0, self.tau)

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        v = memory["v"] + move**2
        return _fedopt.advance(params, move, v, memory, self.server_lr, self.beta1, self.tau)
