"""The cores of this machine."""

import os


def usable_cores() -> int:
    """How many this process may use: a batch system or a container may give it only some of them."""
    own = getattr(os, "sched_getaffinity", None)  # Linux
    return len(own(0)) if own else os.cpu_count() or 1
