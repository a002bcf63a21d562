"""One scale for the numbers of examples, learnt from training rows alone: everybody's, or each client's own.

The rule is the same for simulated clients and for real ones. Under ``federated`` each client tells once how
many values it has in each column (of an image: in each channel), their mean and the sum of their squared
distances from it; merged, these are the moments of all training rows. Under ``client`` nothing is told.
Numbers that are missing are filled by the same rows, with their mean or median. Medians of several clients
tell no median of all, so where one is wanted under ``federated``, all rows must be here.
"""

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.util.errors import UserError
from fedcohort.util.settings import checked

ScaleRule = Literal["federated", "client", "none"]  # by whose rows numbers are scaled
Gaps = Literal["none", "mean", "median"]  # what stands in for a number that is missing; none: nothing is
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
    """What is subtracted, what is divided by, and what fills gaps before that, float32 [width]; or
    [K, width], each client's own."""

    mean: Tensor
    std: Tensor
    fill: Tensor

    def of(self, client: int) -> "Scale":
        """One client's own alone."""
        return Scale(*(table[client : client + 1] for table in self))

    def facts(self) -> dict[str, list[float]]:
        """As a message or file holds it; gaps are filled with the mean unless it says otherwise."""
        usual = torch.equal(self.fill, self.mean)
        return {name: own.tolist() for name, own in self._asdict().items() if name != "fill" or not usual}

    @classmethod
    def read(cls, facts: Any, width: int) -> "Scale":
        """The inverse; ValueError for what is no scale of examples of this width."""
        given = {"fill": facts.get("mean"), **facts} if isinstance(facts, dict) else {}
        columns: list[Any] = [given.get(name) for name in cls._fields]
        if not all(isinstance(column, list) and len(column) == width for column in columns):
            raise ValueError("a scale of other columns")
        if not all(type(each) in (int, float) and abs(each) <= LARGEST for own in columns for each in own):
            raise ValueError("a scale that is no number")
        mean, std, fill = (torch.tensor(column, dtype=torch.float32) for column in columns)
        if not bool((std > 0).all()):
            raise ValueError("a scale that nothing can be divided by")
        return cls(mean, std, fill)

    @classmethod
    def plain(cls, width: int) -> "Scale":
        """That of numbers which are left as they are."""
        return cls(torch.zeros(width), torch.ones(width), torch.zeros(width))


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
    return Scale(mean.float(), std.float(), mean.float())


def medians(x: Tensor, rows: Tensor, client: Tensor, clients: int, numbers: Tensor) -> Tensor:
    """``[K, width]`` of ``x[rows]``, which belong to ``client``; 0 where a client has no number."""
    found = np.zeros((clients, len(numbers)), dtype=np.float32)
    for place in range(clients):
        own = x[rows[client == place]].double().numpy()
        known = numbers.numpy() & ~np.isnan(own).all(axis=0)
        found[place, known] = np.nanmedian(own[:, known], axis=0)
    return torch.from_numpy(found)


def scaled(x: Tensor, scale: Scale, numbers: Tensor, client: Tensor | None = None) -> Tensor:
    """A copy of ``x``, by one scale or by that of each row's ``client`` (-1: nobody's, left as it is), with
    no gap left."""
    usual = (0.0, 1.0, 0.0)  # of what is no quantity, and of nobody
    by = [torch.where(numbers, own, none) for own, none in zip(scale, usual, strict=True)]
    if client is not None:
        by = [torch.cat([own, torch.full_like(own[:1], none)]) for own, none in zip(by, usual, strict=True)]
    out = torch.empty_like(x)
    for start in range(0, len(x), BLOCK):
        some = slice(start, start + BLOCK)
        wide = x[some].reshape(len(x[some]), len(numbers), -1)
        mean, std, fill = ((own if client is None else own[client[some]]).unsqueeze(-1) for own in by)
        out[some] = ((torch.where(wide.isnan(), fill, wide) - mean) / std).view_as(out[some])
    if not torch.isfinite(out.sum()) and bool(out.isinf().any()):
        raise UserError("some numbers are too far from all others to be scaled: correct or remove those rows")
    return out


@dataclass(frozen=True)
class Scaling:
    """What is done to the numbers of a data set, and what its clients would tell for it."""

    numbers: Tensor | None = None
    moments: Moments | None = None
    scale: Scale | None = None  # one for all clients or each client's own; None: nothing is to be changed

    @classmethod
    def learnt(
        cls,
        numbers: Tensor | None,
        x: Tensor,
        rows: Tensor,
        client: Tensor,
        clients: int,
        rule: ScaleRule | Scale,
        gaps: Gaps = "none",
    ) -> "Scaling":
        """From the training rows and whose they are."""
        if not isinstance(rule, Scale):
            checked(rule, ScaleRule, "data.scale")
        if numbers is None:
            return cls()
        known = moments(x, rows, client, clients, numbers)
        if isinstance(rule, Scale):
            return cls(numbers, known, rule)
        scale = merged(known) if rule == "federated" else each(known)
        if gaps == "median":
            pooled = rule == "federated"
            whose = torch.zeros_like(client) if pooled else client
            middle = medians(x, rows, whose, 1 if pooled else clients, numbers)
            scale = scale._replace(fill=middle[0] if pooled else middle)
        if rule == "none":
            unscaled = scale._replace(mean=torch.zeros_like(scale.mean), std=torch.ones_like(scale.std))
            return cls(numbers, known, None if gaps == "none" else unscaled)
        return cls(numbers, known, scale)

    @property
    def shared(self) -> Scale | None:
        """By which all clients' numbers are changed, if by one."""
        return self.scale if self.scale is not None and self.scale.mean.dim() == 1 else None

    @property
    def own(self) -> Scale | None:
        """By which each client's are."""
        return self.scale if self.shared is None else None

    def __call__(
        self, x: Tensor, owner: np.ndarray, shared: MutableMapping[bytes, Tensor] | None = None
    ) -> Tensor:
        """``x`` scaled, with no gap left; ``shared`` holds what others made of it."""
        if self.numbers is None or self.scale is None:
            return x
        if self.shared is None:
            return scaled(x, self.scale, self.numbers, torch.from_numpy(owner))
        key = b"".join(value.numpy().tobytes() for value in self.scale)
        out = None if shared is None else shared.get(key)
        if out is None:
            out = scaled(x, self.scale, self.numbers)
            if shared is not None:
                shared[key] = out
        return out
