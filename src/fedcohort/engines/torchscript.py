"""Functions of tensors that run outside Python's interpreter lock.

PyTorch computes outside the lock, but takes it again for every call, and two workers that make thirty small
calls a step spend a third of their time handing it over. Compiled as TorchScript, a whole step is one call.
TorchScript is no longer developed; where PyTorch cannot compile a function any more the function itself is
called, with the same result.
"""

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])
COMPILING = threading.Lock()


def unlocked(function: F) -> F:
    """Compiles ``function`` at its first call; it must be written in the part of Python that TorchScript
    knows."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        with COMPILING:
            ready = compiled(function)
        with torch.no_grad():  # gradients are written out, nobody asks for theirs
            return ready(*arguments)

    return call  # type: ignore[return-value]


@functools.cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as TorchScript, or itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.script(function)
    except Exception:  # whatever a later PyTorch raises: the function works without it
        return function
