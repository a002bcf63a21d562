"""Rewards that clients got in each other's company, averaged in a matrix, and when it has settled.

A memory holds the ``interaction`` matrix ``[N, N]``, each client's average reward ``gamma [N]``, and for each
group (at most N) how much a round moves its part of the matrix, ``change``, and for how many rounds in a row
that was little, ``settled``. With ``times``, how often an entry was seen, averages are corrected for it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

Memory = dict[str, Tensor]


class Lesson(NamedTuple):
    """What a cohort teaches about its group."""

    reward: Tensor  # [m] of each client
    alpha: float  # its weight against what was known
    smooth: float  # the weight of this round's change against that of earlier ones
    turns: float  # rounds in which everybody could have been seen


def first_memory(clients: int, start: float = 0.0, count: bool = False) -> Memory:
    """Before the first round, with ``start`` in the whole matrix."""
    memory = {
        "interaction": torch.full((clients, clients), start, dtype=torch.float64),
        "gamma": torch.zeros(clients, dtype=torch.float64),
        "change": torch.ones(clients, dtype=torch.float64),
        "settled": torch.zeros(clients, dtype=torch.long),
    }
    return {**memory, "times": torch.zeros(clients, clients)} if count else memory


def learn(memory: Memory, group: int, ids: Tensor, lesson: Lesson, tolerance: float) -> bool:
    """Takes in, in place, what the clients ``ids`` of a group teach. Whether the group has settled: for as
    many rounds as it takes to see everybody its change was below ``tolerance``; it then begins anew."""
    reward, alpha, smooth, turns = lesson
    seen = torch.meshgrid(ids, ids, indexing="ij")
    before = memory["interaction"][seen]
    after = (1 - alpha) * before + alpha * reward[:, None]
    memory["interaction"][seen] = after
    memory["gamma"][ids] = (1 - alpha) * memory["gamma"][ids] + alpha * reward
    if "times" in memory:
        memory["times"][seen] += 1
    moved = ((after - before) / reward.sum()).pow(2).mean()
    memory["change"][group] = (1 - smooth) * memory["change"][group] + smooth * moved
    below = bool(memory["change"][group] < tolerance)
    memory["settled"][group] = memory["settled"][group] + 1 if below else 0
    if memory["settled"][group] < max(1, round(turns)):
        return False
    memory["change"][group], memory["settled"][group] = 1.0, 0
    return True


def between(memory: Memory, members: Tensor, alpha: float | None = None) -> Tensor:
    """The matrix of these clients; with ``alpha``, as if no entry had started at zero: after c rounds one has
    only 1 - (1 - alpha)^c of what it averages."""
    matrix = memory["interaction"][members][:, members]
    if alpha is None:
        return matrix
    weight = 1 - (1 - alpha) ** memory["times"][members][:, members].double()
    return torch.where(weight > 0, matrix / weight, 0.0)
