"""Expand a folder of CIFAR contact sheets into the official binary layout in the cache.

    python scripts/expand_cifar.py DIR

Loading ``cifar10`` or ``cifar100`` from such a folder does the same on first use.
"""

import sys
from pathlib import Path

from fedcohort.data.locate import Places
from fedcohort.data.sheets import expand, is_sheets
from fedcohort.util.errors import UserError


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(arguments[0])
    try:
        if not is_sheets(folder):
            raise UserError(f"{folder} holds no contact sheets: it needs labels.npz and *.webp files")
        print(expand(folder, Places.of().cache))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
