"""Randomness keyed by purpose, never by call order.

A draw depends on (seed, key) alone: the same round of the same client shuffles its batches the same way
whichever engine runs it, in whatever order, before or after a restart. Nothing here has state to save.
"""

import hashlib

import numpy as np
import torch

Key = str | int


def key_seed(seed: int, *key: Key) -> int:
    """A 63-bit number that any other (seed, key) shares only by accident."""
    text = "\x1f".join([str(seed), *(f"{type(part).__name__}:{part}" for part in key)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def generator(seed: int, *key: Key) -> torch.Generator:
    """A fresh torch generator for this purpose, for example ``generator(seed, round, "batch", client)``."""
    return torch.Generator().manual_seed(key_seed(seed, *key))


def numpy_generator(seed: int, *key: Key) -> np.random.Generator:
    """The same for NumPy."""
    return np.random.default_rng(key_seed(seed, *key))
