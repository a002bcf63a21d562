"""Memory that a worker has used stays with the process.

The C library hands large freed blocks back to the system, and getting them again costs a page fault for every
4 KiB, for which all threads of a process queue. A round frees and asks for the same sizes as the one before.
"""

import ctypes

MEBIBYTE = 1 << 20
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # glibc's numbers for mallopt


def keep_freed_memory() -> None:
    """Tells glibc to do so; other C libraries are left as they are."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    mallopt(MMAP_THRESHOLD, 32 * MEBIBYTE)  # its largest: bigger blocks always come from the system
    mallopt(TRIM_THRESHOLD, 1024 * MEBIBYTE)
    mallopt(TOP_PAD, 16 * MEBIBYTE)  # the heap grows by so much at a time
