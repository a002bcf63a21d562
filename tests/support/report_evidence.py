"""Runs that are nowhere but in memory, for the words of a report."""

from dataclasses import replace

import numpy as np

from fedcohort.report.evidence import Evidence, Labels, Run
from support.report_runs import a_home

NAMES = ("a", "b", "c", "d")
CLASSES = ("x", "y")


def a_run(method: str = "fedavg", seed: int = 0, accuracy: float = 0.9, **changes: object) -> Run:
    """Four clients; the first is badly served, the second has a single test sample."""
    run = Run(
        home=a_home(method, seeds=[seed]),
        title=method,
        seed=seed,
        complete=True,
        facts={"fingerprint": f"data{seed}"},
        metrics={"global.accuracy": accuracy, "global.accuracy[x]": 1.0, "global.accuracy[y]": 0.4},
        curves={"global.accuracy": (np.array([4.0]), np.array([accuracy]))},
        clients=NAMES,
        group=np.zeros(4, dtype=np.int64),
        accuracy=np.array([0.3, 0.0, 1.0, 0.95]),
        test_size=np.array([40.0, 1.0, 40.0, 40.0]),
        visits=np.array([[1, 0, 0, 1], [1, 2, 0, 1], [2, 2, 0, 1], [2, 3, 0, 1], [3, 3, 0, 1], [3, 0, 0, 0]]),
        rounds=4,
    )
    return replace(run, **changes)


def evidence_of(*runs: Run, counts: list[list[int]] | str | None = None) -> Evidence:
    if isinstance(counts, str):
        return Evidence(runs, {run.facts["fingerprint"]: counts for run in runs})
    table = np.array(counts or [[2, 38], [20, 0], [40, 0], [39, 1]], dtype=float)
    return Evidence(runs, {run.facts["fingerprint"]: Labels(table, NAMES, CLASSES) for run in runs})
