"""The cores of this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


def usable_cores() -> int:
    """How many this process may use: a batch system or a container may give it only some of them."""
    own = getattr(os, "sched_getaffinity", None)  # Linux
    return len(own(0)) if own else os.cpu_count() or 1


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
