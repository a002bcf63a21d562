"""Kernels written for one network and this processor, and compiled by LLVM: what a chain of layers costs on
one core at best. They come with ``pip install fedcohort[fast]``; without, PyTorch does the same."""

import threading
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedcohort.engines.chain import Chain

if TYPE_CHECKING:
    from fedcohort.engines.vector.program import Program

WRITING = threading.Lock()  # workers that ask for the same program wait for one of them to write it


def program_for(chain: Chain, shape: tuple[int, ...]) -> "Program | None":
    """The compiled steps of a network on examples of this shape, or None where they would win nothing."""
    if find_spec("llvmlite") is None or not is_known(chain, shape):
        return None
    with WRITING:
        return _program(tuple(chain.layers), shape)


def is_known(chain: Chain, shape: tuple[int, ...]) -> bool:
    return not chain.is_linear and len(shape) == 3


@lru_cache(maxsize=32)
def _program(layers: tuple, shape: tuple[int, ...]) -> "Program":  # type: ignore[type-arg]
    from fedcohort.engines.vector.machine import usual_lanes
    from fedcohort.engines.vector.program import Program

    return Program(Chain(list(layers)), shape, usual_lanes())
