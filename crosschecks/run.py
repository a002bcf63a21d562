"""Compares fedcohort with code that others wrote: ``python -m crosschecks.run`` (``make crosscheck``).

Makes the environments it needs, prints a table per check and writes docs/crosschecks.md. Fails when two
things differ that should not, or agree although a reason is on record why they cannot.
"""

import argparse
import sys

import torch

from benchmarks.runners import ROOT, RunError
from crosschecks import authors, clustering, server_steps, skew, training_fedlab, training_pfl
from crosschecks.rows import APART, TOLERANCE, table

CHECKS = (server_steps, training_pfl, training_fedlab, clustering, skew, authors)
NAMES = {check.__name__.removeprefix("crosschecks."): check for check in CHECKS}
PAGE = ROOT / "docs" / "crosschecks.md"
INTRODUCTION = f"""# Cross-checks

fedcohort beside code that nobody here wrote, on the same inputs. Written by `make crosscheck`, which also
makes the environments of the packages compared; the scripts are in `crosschecks/`.

**same**: the greatest difference is at most {TOLERANCE:g}. **differs**: it is at least {APART:g}, for the
reason below the table. Where a package departs from its method's paper by mistake, the mistake is named with
its line and, if that is a small change, undone: the repaired package then has to agree with fedcohort.
"""


def sections(page: str) -> dict[str, str]:
    """The page's text by title."""
    parts = page.split("\n## ")[1:]
    return {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in parts}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m crosschecks.run",
        description="Compares fedcohort with code that others wrote and writes docs/crosschecks.md.",
    )
    say = "run this check; the page keeps what it says of the others (may be repeated)"
    parser.add_argument("--only", action="append", choices=NAMES, default=[], help=say)
    only = parser.parse_args().only
    chosen = [check for name, check in NAMES.items() if not only or name in only]
    known, wrong = sections(PAGE.read_text()), 0
    if unknown := [check.TITLE for check in CHECKS if check not in chosen and check.TITLE not in known]:
        print(f"the page says nothing of {', '.join(unknown)} yet: run all", file=sys.stderr)
        return 2
    torch.set_num_threads(1)  # more only get in each other's way: networks are small
    for check in chosen:
        try:
            rows, versions = check.run()
        except RunError as error:
            print(f"{check.TITLE}: {error}", file=sys.stderr)
            return 1
        if check.TITLE in known and all(row.skipped for row in rows):
            print(f"{check.TITLE}: nothing compared, the page stays\n{table(rows)}", flush=True)
            continue
        used = ", ".join(f"{name} {number}" for name, number in versions.items()) or "nothing"
        known[check.TITLE] = f"## {check.TITLE}\n\n{check.ABOUT}\n\nCompared with {used}.\n\n{table(rows)}\n"
        print(known[check.TITLE], flush=True)
        wrong += sum(not row.holds for row in rows)
    PAGE.write_text("\n".join([INTRODUCTION, *(known[check.TITLE] for check in CHECKS)]))
    print(f"{wrong} unexpected; written: {PAGE.relative_to(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
