"""Questions to clients, apart from who answers them.

What a round must ask before its orders are known is a generator: it yields what is to be done with an engine
and goes on with the answer. So the same lines choose a cohort, and tell whether that takes any question.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from fedcohort.core.engine import Engine

T = TypeVar("T")
Asking = Generator[Callable[[Engine], Any], Any, T]  # comes to a T


def answered(asking: Asking[T], engine: Engine) -> T:
    """What it comes to when this engine answers."""
    answer = None
    while True:
        try:
            question = asking.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = question(engine)


def unasked(asking: Asking[T]) -> T | None:
    """What it comes to if there is nothing to ask; else None."""
    try:
        next(asking)
    except StopIteration as end:
        result: T = end.value
        return result
    return None
