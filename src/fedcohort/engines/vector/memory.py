"""Memory that a program needs for itself."""

from typing import NamedTuple

from fedcohort.engines.vector.language import Array, Value
from fedcohort.engines.vector.layout import LINE, up

BEYOND = 5 * LINE  # vectors may reach over the end of a region


class Region(NamedTuple):
    """Memory of the same size for each sample of a batch."""

    start: Array
    stride: int

    def of(self, sample: Value) -> Array:
        return self.start + sample * self.stride


class Scratch:
    """One piece of memory, cut into regions."""

    def __init__(self, start: Array, capacity: Value) -> None:
        self.next, self.capacity = start, capacity
        self.once = self.each = 0  # numbers in all, and for each sample of a batch

    def take(self, size: int) -> Array:
        here, size = self.next, up(size, LINE) + BEYOND
        self.once, self.next = self.once + size, here + size
        return here

    def take_each(self, stride: int) -> Region:
        here = self.take(0)
        self.each, self.next = self.each + stride, self.next + self.capacity * stride
        return Region(here, stride)
