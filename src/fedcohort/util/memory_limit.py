"""What this machine cannot hold is refused before it is asked for, with the memory it would need."""

import os

from fedcohort.util.errors import UserError

SHARE = 0.5  # of this machine's memory that one part may take
GB = 10**9


def machine_bytes() -> int | None:
    """The memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def refuse_beyond(needed: float, who: str, cure: str, where: str = "") -> None:
    """Refuses what needs more bytes than this machine can spare, before they are asked for."""
    there = machine_bytes()
    if there is not None and needed > SHARE * there:
        needs = " ".join(filter(None, (f"{who} needs {needed / GB:,.0f} GB", where)))
        raise UserError(f"{needs}, and this machine has {there / GB:,.0f} GB: {cure}")
