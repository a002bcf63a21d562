"""Clients cut into shards, for engines whose clients are on several machines.

A shard is trained, evaluated and summed as a whole, wherever it is, and sums of shards are added up along one
binary tree. Shards and tree depend on the task alone, so no number depends on how many machines there are or
on which of them holds what.
"""

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.task import Task
from fedcohort.engines.chain import Chain

TOGETHER = 8  # clients of a round in a shard, on average, where small clients are trained together

Place = tuple[int, int]  # in the tree: level, counted from the shards, and number from the left
Sums = dict[Place, Tensor]


class Shards(NamedTuple):
    """Consecutive clients each; as many as there are ``bounds`` between them, a power of two."""

    bounds: Sequence[int]  # shard s holds clients bounds[s] to bounds[s + 1]

    @classmethod
    def of(cls, task: Task) -> "Shards":
        """Of about equally many training samples, and so many that a round has work for each."""
        sizes = task.federation.sizes[0]
        chain = Chain.of(task.model)
        each = TOGETHER if chain is not None and chain.is_linear else 1
        wanted = min(-(-task.cohort_size // each), len(sizes))
        count = 1 << max(0, wanted - 1).bit_length()
        work = (sizes + 1).cumsum(0).double()  # one for the client itself: some have no samples
        inner = torch.searchsorted(work, torch.arange(1, count).double() * float(work[-1]) / count)
        return cls([0, *inner.tolist(), len(sizes)])

    @property
    def number(self) -> int:
        return len(self.bounds) - 1

    def clients(self, shard: int) -> Tensor:
        """The numbers of its clients; there may be none."""
        return torch.arange(self.bounds[shard], self.bounds[shard + 1])

    def of_each(self, clients: Tensor) -> dict[int, Tensor]:
        """The positions in ``clients`` that belong to each shard, where there are any."""
        shard = torch.searchsorted(torch.tensor(self.bounds[1:]), clients, right=True)
        return {int(one): (shard == one).nonzero()[:, 0] for one in shard.unique()}


def climb(sums: Mapping[Place, Tensor], shards: int, here: Collection[int]) -> Sums:
    """Neighbours added up as far as all shards below them are ``here``. Those that are absent count as zero.

    What is left is added up in the same order by whoever has the others.
    """
    left, complete, level = dict(sums), set(here), 0
    while 1 << level < shards:
        above = {number // 2 for number in complete if number ^ 1 in complete}
        for number in above:
            pair = [left.pop((level, child), None) for child in (2 * number, 2 * number + 1)]
            there = [each for each in pair if each is not None]
            if there:
                left[level + 1, number] = there[0] if len(there) == 1 else there[0] + there[1]
        complete, level = above, level + 1
    return left


def share_out(weight: Sequence[float], power: Sequence[float]) -> list[int]:
    """Which of several machines gets each shard: consecutive ones, about as heavy as it is powerful.

    Where there are many, whole branches of the tree are given away, so that few sums are left.
    """
    branch = 1 << max(0, (len(weight) // (4 * len(power))).bit_length() - 1)
    ends = [end / sum(power) for end in accumulate(power)]
    total, before, owners = sum(weight) or 1.0, 0.0, list[int]()
    for start in range(0, len(weight), branch):
        own = weight[start : start + branch]
        middle = (before + sum(own) / 2) / total
        owners += [min(len(power) - 1, bisect_right(ends, middle))] * len(own)
        before += sum(own)
    return owners
