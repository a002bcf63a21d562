"""How many seconds a process waits for compiled kernels: ``python -m fedcohort.bench.first_use MODEL``.

:mod:`.measure` starts it twice with a cache that was empty, so that the second finds what the first compiled.
"""

import sys
import time

from fedcohort.engines import vector
from fedcohort.engines.chain import Chain
from fedcohort.models import flat_model

SHAPE, CLASSES = (3, 32, 32), 10


def main() -> None:
    chain = Chain.of(flat_model(sys.argv[1], SHAPE, CLASSES))
    since = time.perf_counter()
    if chain is not None and vector.program_for(chain, SHAPE) is not None:
        print(time.perf_counter() - since)


if __name__ == "__main__":
    main()
