"""The cores of this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def usable_cores() -> int:
    """How many this process may use: a batch system or a container may give it only some of them."""
    own = getattr(os, "sched_getaffinity", None)  # Linux
    return len(own(0)) if own else os.cpu_count() or 1


def stay_nice() -> None:
    """In a session of its own a process that is ``nice`` would be so only among those of that session."""
    with suppress(OSError):  # not on Linux, or without groups for sessions
        Path("/proc/self/autogroup").write_text(str(os.nice(0)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, an operation of PyTorch uses a single core: with more, numbers depend on how many there are."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
