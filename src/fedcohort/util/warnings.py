"""Warnings in words: each is told once, without the line of code that it comes from."""

import threading
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


@contextmanager
def told_after(seconds: float, text: str) -> Iterator[None]:
    """Says so if what is done meanwhile takes longer."""
    timer = threading.Timer(seconds, warnings.warn, [text])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
