"""Methods that cannot scale say so before they start, with the memory they would need."""

import os

from fedcohort.core.parts import Part
from fedcohort.core.profile import Profile
from fedcohort.errors import UserError

SHARE = 0.5  # of this machine's memory that one part may take
GB = 10**9


def machine_bytes() -> int | None:
    """The memory of this machine, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def must_fit(part: Part, profile: Profile) -> None:
    """Refuses a part whose matrices would not fit in this machine's memory."""
    needed, there = part.server_bytes(profile), machine_bytes()
    if there is not None and needed > SHARE * there:
        raise UserError(
            f"{part.name} needs {needed / GB:,.0f} GB at the server for {profile.num_clients:,} clients, and "
            f"this machine has {there / GB:,.0f} GB: choose a method that scales, or fewer clients"
        )
