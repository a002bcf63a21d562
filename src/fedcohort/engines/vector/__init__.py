"""Kernels written for one network and this processor, and compiled by LLVM: what a network with convolutions
costs on one core at best. They come with ``pip install fedcohort[fast]``; without, PyTorch does the same."""

import threading
import warnings
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedcohort.engines.chain import Chain, Layer

if TYPE_CHECKING:
    from fedcohort.engines.vector.program import Program

WRITING = threading.Lock()  # workers that ask for the same program wait for the one that writes it


def program_for(chain: Chain, shape: tuple[int, ...]) -> "Program | None":
    """The compiled steps of a network on examples of this shape; None where there cannot be any."""
    if not chain.convolves or len(shape) != 3 or find_spec("llvmlite") is None:
        return None  # on some processors PyTorch's own products are faster for linear layers alone
    if chain.kinds[-1].cuts:  # the loss is taken at a linear layer
        return None
    with WRITING:
        return _program(tuple(chain.layers), shape)


@lru_cache(maxsize=32)
def _program(layers: tuple[Layer, ...], shape: tuple[int, ...]) -> "Program | None":
    from fedcohort.engines.vector.machine import usual_lanes
    from fedcohort.engines.vector.program import Program

    try:
        lanes = usual_lanes()
        return Program(Chain(list(layers)), shape, lanes) if lanes else None
    except RuntimeError as error:  # LLVM does not know this machine
        warnings.warn(
            f"fedcohort[fast]: {error}; PyTorch takes the steps instead", RuntimeWarning, stacklevel=2
        )
        return None
