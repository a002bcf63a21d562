"""Compares fedcohort with code that others wrote: ``python -m crosschecks.run`` (``make crosscheck``).

Makes the environments it needs, prints a table per check and writes docs/crosschecks.md. Fails when two
things differ that should not, or agree although a reason is on record why they cannot.
"""

import sys

from benchmarks.runners import ROOT, RunError
from crosschecks import clustering, server_steps, skew, training_fedlab, training_pfl
from crosschecks.rows import APART, TOLERANCE, table

CHECKS = (server_steps, training_pfl, training_fedlab, clustering, skew)
PAGE = ROOT / "docs" / "crosschecks.md"
INTRODUCTION = f"""# Cross-checks

fedcohort beside code that nobody here wrote, on the same inputs. Written by `make crosscheck`, which also
makes the environments of the packages compared; the scripts are in `crosschecks/`.

**same**: the greatest difference is at most {TOLERANCE:g}. **differs**: it is at least {APART:g}, for the
reason below the table. Where a package departs from its method's paper by mistake, the mistake is named with
its line and, if that is a small change, undone: the repaired package then has to agree with fedcohort.
"""


def main() -> int:
    pages, wrong = [INTRODUCTION], 0
    for check in CHECKS:
        try:
            rows, versions = check.run()
        except RunError as error:
            print(f"{check.TITLE}: {error}", file=sys.stderr)
            return 1
        used = ", ".join(f"{name} {number}" for name, number in versions.items())
        pages.append(f"## {check.TITLE}\n\n{check.ABOUT}\n\nCompared with {used}.\n\n{table(rows)}\n")
        print(pages[-1], flush=True)
        wrong += sum(not row.holds for row in rows)
    PAGE.write_text("\n".join(pages))
    print(f"{wrong} unexpected; written: {PAGE.relative_to(ROOT)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
