"""Choices by chance, kept as numbers, so that a failing case can be made again from fewer and smaller ones.

The idea is hypothesis's; its strategies spend 60 ms on a case of this size, and these functions a few.
"""

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Where a case's choices come from: a seed, or the choices of an earlier case (0 where they end)."""

    def __init__(self, source: int | Sequence[int]) -> None:
        self.chance = random.Random(source) if isinstance(source, int) else None
        self.given = [] if isinstance(source, int) else list(source)
        self.made: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to ``count`` - 1."""
        if self.chance is not None:
            number = self.chance.randrange(count)
        else:
            position = len(self.made)
            number = self.given[position] % count if position < len(self.given) else 0
        self.made.append(number)
        return number

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def one_in(self, count: int) -> bool:
        return self.below(count) == count - 1

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Up to ``most`` different ones."""
        chosen = dict.fromkeys(self.below(len(options)) for _ in range(self.below(most + 1)) if options)
        return [options[number] for number in chosen]


def smaller(choices: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    """Choices that still fail, with as many as possible left out or 0."""
    size = max(1, len(choices) // 2)
    while size:
        start = 0
        while start < len(choices):
            end = start + size
            without, zero = choices[:start] + choices[end:], [0] * len(choices[start:end])
            zeroed = choices[:start] + zero + choices[end:]
            if fails(without):
                choices = without
            elif any(choices[start:end]) and fails(zeroed):
                choices = zeroed
                start = end
            else:
                start = end
        size //= 2
    return choices
