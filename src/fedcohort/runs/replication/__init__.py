"""Tables and figures of papers made again: what ``papers/`` asks, what is done, and what it says."""
