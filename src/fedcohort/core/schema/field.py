"""Numbers of one kind in a message: what they are called, how many they are, and which are possible."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.records import Memory


class Range(NamedTuple):
    """What an honest sender can tell: finite numbers from ``low`` to ``high``."""

    low: float = -math.inf
    high: float = math.inf
    or_nan: bool = False  # or NaN, where there is nothing to tell of
    setting: str = ""  # that sets the bound

    def holds(self, number: float) -> bool:
        """Also of whole numbers that no float can hold."""
        if number != number:
            return self.or_nan
        return self.low <= number <= self.high and abs(number) != math.inf

    def holds_all(self, values: Tensor) -> bool:
        inside = (values >= self.low) & (values <= self.high) & values.isfinite()
        return bool((inside | values.isnan() if self.or_nan else inside).all())

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.low:g}"
        return f"between {self.low:g} and {self.high:g}" + (f" ({self.setting})" if self.setting else "")


class Field(NamedTuple):
    """Numbers of one kind in a message."""

    record: str  # the named tensors among which it travels; FACTS: by itself
    name: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    range: Range = Range()
    words: str = ""  # what it is; empty: a method's own, known by its name

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return self.words or f"{self.name} of its {self.record}"


Fields = tuple[Field, ...]
FACTS = ""  # numbers by themselves, each of eight bytes


def bytes_of(fields: Iterable[Field]) -> int:
    return sum(field.bytes for field in fields)


def fields_of(records: Mapping[str, Memory]) -> Fields:
    """Of these records as they travel."""
    return tuple(
        Field(record, name, tuple(value.shape), value.dtype)
        for record, memory in records.items()
        for name, value in memory.items()
    )
