"""Their side of a comparison: ``python -m crosschecks.authors MODULE CLONE PROBLEM ANSWER``.

What they print is not listened to, and what they write is written to a folder that is deleted.
"""

import os
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np

from crosschecks.problem import write


def main() -> None:
    name, clone, given, found = sys.argv[1:]
    module = import_module(f"crosschecks.authors.{name}")
    with np.load(given) as arrays:
        problem = dict(arrays)
    sys.argv[1:] = []  # some read it when they are imported
    sys.path.insert(0, clone)  # after all of ours is imported: their modules have names like utils
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write(module.theirs(problem, Path(clone)), Path(found))
        os.chdir("/")
    print("{}")


if __name__ == "__main__":
    main()
