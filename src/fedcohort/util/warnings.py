"""Warnings in words: each is told once, without the line of code that it comes from."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def warnings_to(say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile ``say`` gets the text of every warning."""
    told = set[str]()

    def show(message: Warning | str, *where: object, **more: object) -> None:
        text = " ".join(str(message).split())
        if text not in told:
            told.add(text)
            say(text)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
