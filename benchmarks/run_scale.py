"""A million clients, and the protocols of two papers: ``make bench-scale``.

Runs ``fedcohort bench --jobs E,P,scale`` and writes what it measured to ``scale.json`` and ``RESULTS.md``.
"""

import argparse
import json
import time
from pathlib import Path

from benchmarks.runners import HERE
from benchmarks.tables import write_report
from fedcohort.bench.measure import bench

FILE = "scale.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", default="E,P,scale", help="which, separated by commas")
    parser.add_argument("--repeats", type=int, default=7, help="timed rounds of each job")
    parser.add_argument("--out", type=Path, default=HERE, help="folder for scale.json and RESULTS.md")
    arguments = parser.parse_args()
    path = arguments.out / FILE
    known = json.loads(path.read_text())["jobs"] if path.exists() else {}
    measured = bench(arguments.jobs.split(","), arguments.repeats, print)
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    for job in measured["jobs"].values():
        job |= {"machine": measured["machine"], "started": started}
    path.write_text(json.dumps({"jobs": {**known, **measured["jobs"]}}, indent=1) + "\n")
    write_report(arguments.out)
    print(f"written: {arguments.out / 'RESULTS.md'}")


if __name__ == "__main__":
    main()
