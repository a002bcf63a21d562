"""One scale for the numbers of examples, learnt from training rows alone: everybody's, or each client's own.

The rule is the same for simulated clients and for real ones. Under ``federated`` each client tells once how
many values it has in each column (of an image: in each channel), their mean and the sum of their squared
distances from it; merged, these are the moments of all training rows. Under ``client`` nothing is told.
"""

import math
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.util.errors import UserError
from fedcohort.util.settings import checked

Rule = Literal["federated", "client", "none"]
BLOCK = 4096  # rows that are looked at together
LARGEST = 1e38  # of a scale: single precision holds it
CONSTANT = 2.0**-23  # of the mean: a smaller deviation is the rounding of one value


class Moments(NamedTuple):
    """Of each client's training rows, float64 [K, width]; nothing is counted of what is not to be scaled."""

    number: Tensor  # how many there are
    mean: Tensor
    spread: Tensor  # sum of squared distances from that mean

    def of(self, client: int) -> "Moments":
        """One client's alone."""
        return Moments(*(table[client : client + 1] for table in self))


class Scale(NamedTuple):
    """What is subtracted and what is divided by, float32 [width]; or [K, width], each client's own."""

    mean: Tensor
    std: Tensor

    def facts(self) -> dict[str, list[float]]:
        """As a message holds it."""
        return {name: value.tolist() for name, value in self._asdict().items()}

    @classmethod
    def read(cls, facts: Any, width: int) -> "Scale":
        """The inverse; ValueError for what is no scale of examples of this width."""
        columns: list[Any] = [facts.get(name) for name in cls._fields] if isinstance(facts, dict) else []
        if not columns or not all(isinstance(column, list) and len(column) == width for column in columns):
            raise ValueError("a scale of other columns")
        if not all(type(each) in (int, float) and abs(each) <= LARGEST for own in columns for each in own):
            raise ValueError("a scale that is no number")
        mean, std = (torch.tensor(column, dtype=torch.float32) for column in columns)
        if not bool((std > 0).all()):
            raise ValueError("a scale that nothing can be divided by")
        return cls(mean, std)


def moments(x: Tensor, rows: Tensor, client: Tensor, clients: int, numbers: Tensor) -> Moments:
    """Of ``x[rows]``, which belong to ``client``; gaps (NaN) are not counted. ``numbers`` says which columns
    are quantities."""
    count, mean, spread = (torch.zeros(clients, len(numbers), dtype=torch.float64) for _ in range(3))
    for values, known, whose in _blocks(x, rows, client, numbers):
        count.index_add_(0, whose, known.sum(2).double())
        mean.index_add_(0, whose, torch.where(known, values, 0.0).sum(2))
    mean /= count.clamp(min=1)
    for values, known, whose in _blocks(x, rows, client, numbers):
        apart = torch.where(known, values - mean[whose][:, :, None], 0.0)
        spread.index_add_(0, whose, apart.square().sum(2))
    return Moments(count, mean, spread)


def _blocks(
    x: Tensor, rows: Tensor, client: Tensor, numbers: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Values [n, width, cells] of a few rows at a time, which of them count, and whose they are."""
    for some, whose in zip(rows.split(BLOCK), client.split(BLOCK), strict=True):
        values = x[some].double().reshape(len(some), len(numbers), -1)
        yield values, ~values.isnan() & numbers[:, None], whose


def merged(moments: Moments) -> Scale:
    """The scale of all rows of all clients together."""
    count = moments.number.sum(0)
    mean = (moments.number * moments.mean).sum(0) / count.clamp(min=1)
    spread = (moments.spread + moments.number * (moments.mean - mean).square()).sum(0)
    return _scale(count, mean, spread)


def each(moments: Moments) -> Scale:
    """Every client's own."""
    return _scale(*moments)


def _scale(count: Tensor, mean: Tensor, spread: Tensor) -> Scale:
    """Columns that hold one value, or none, are only centred. As exact as examples are: so that seeds that
    deal the same rows to other clients share what is scaled."""
    std = (spread / count.clamp(min=1)).sqrt()
    std = torch.where(std > CONSTANT * mean.abs(), std, 1.0)
    return Scale(mean.float(), std.float())


def scaled(x: Tensor, scale: Scale, numbers: Tensor, client: Tensor | None = None) -> Tensor:
    """A copy of ``x``, by one scale or by that of each row's ``client`` (-1: nobody's, left as it is); gaps
    become the mean."""
    mean, std = torch.where(numbers, scale.mean, 0.0), torch.where(numbers, scale.std, 1.0)
    out = torch.empty_like(x)
    for start in range(0, len(x), BLOCK):
        some = slice(start, start + BLOCK)
        wide = x[some].reshape(len(x[some]), len(numbers), -1)
        by = (mean, std) if client is None else (mean[client[some]], std[client[some]])
        moved = (wide - by[0].unsqueeze(-1)) / by[1].unsqueeze(-1)
        if client is not None:
            moved = torch.where((client[some] < 0)[:, None, None], wide, moved)
        out[some] = moved.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf).view_as(out[some])
    if not torch.isfinite(out.sum()) and bool(out.isinf().any()):
        raise UserError("some numbers are too far from all others to be scaled: correct or remove those rows")
    return out


@dataclass(frozen=True)
class Scaling:
    """What is done to the numbers of a data set, and what its clients would tell for it."""

    rule: str  # "given": by a scale that others made
    numbers: Tensor | None = None
    moments: Moments | None = None
    scale: Scale | None = None  # one for all clients

    @classmethod
    def learnt(
        cls, numbers: Tensor | None, x: Tensor, rows: Tensor, client: Tensor, clients: int, rule: Rule | Scale
    ) -> "Scaling":
        """From the training rows and whose they are."""
        if not isinstance(rule, Scale):
            checked(rule, Rule, "data.scale")
        if numbers is None:
            return cls("none")
        known = moments(x, rows, client, clients, numbers)
        if isinstance(rule, Scale):
            return cls("given", numbers, known, rule)
        return cls(rule, numbers, known, merged(known) if rule == "federated" else None)

    def __call__(
        self, x: Tensor, owner: np.ndarray, shared: MutableMapping[bytes, Tensor] | None = None
    ) -> Tensor:
        """``x`` scaled, with no gap left; ``shared`` holds what others made of it."""
        if self.numbers is None or self.moments is None:
            return x
        client = torch.from_numpy(owner)
        if self.rule == "none":
            return filled(x, self.moments.mean, client)
        if self.scale is None:
            return scaled(x, each(self.moments), self.numbers, client)
        key = b"".join(value.numpy().tobytes() for value in self.scale)
        out = None if shared is None else shared.get(key)
        if out is None:
            out = scaled(x, self.scale, self.numbers)
            if shared is not None:
                shared[key] = out
        return out


def filled(x: Tensor, means: Tensor, client: Tensor) -> Tensor:
    """``x`` with the mean of each row's client in its gaps; the same tensor if there is none."""
    gaps = x.isnan()
    if not bool(gaps.any()):
        return x
    own = torch.where((client < 0)[:, None], 0.0, means[client].float())
    return torch.where(gaps, own.view(*own.shape, *[1] * (x.dim() - 2)), x)
