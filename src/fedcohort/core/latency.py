"""How long a round takes at each client. A simulation has no clock, so latency is made up from the seed."""

import torch
from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.util.keyed import generator

SPEEDS = ((0.60, 1.0), (0.20, 2.0), (0.15, 4.0), (0.05, 8.0))  # share of clients, time for the same work


def latencies(profile: Profile, transfer: float, varied: bool = True) -> Tensor:
    """[N]: in local steps of a quick client, its own steps and ``transfer`` of the model both ways.

    The four speeds are those of Wolfrath et al. (HACCS); not ``varied``: everybody is quick.
    """
    steps = torch.tensor([profile.local.steps_for(size) for size in profile.size.tolist()]).double()
    if not varied:
        return steps + transfer
    share, time = torch.tensor(SPEEDS, dtype=torch.float64).t()
    rank = torch.randperm(len(steps), generator=generator(profile.seed, "latency"))
    last = (share.cumsum(0)[:-1] * len(steps)).round().long()
    return time[torch.bucketize(rank, last, right=True)] * (steps + transfer)
