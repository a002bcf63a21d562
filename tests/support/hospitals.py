"""Two hospitals with a table each: one experiment, simulated or deployed."""

from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fedcohort.runs.experiment import Experiment
from support.inprocess import FIRST, InProcess

SITES = {"site2": (40, 0.0), "site10": (30, 40.0)}  # patients, and how much older they are


def write_tables(folder: Path) -> Path:
    """Two hospitals whose columns stand in another order, with a few ages missing."""
    random = np.random.default_rng(0)
    for site, (patients, older) in SITES.items():
        lines = ["age,smoker,pressure,outcome" if site == "site2" else "pressure,outcome,smoker,age"]
        for number in range(patients):
            outcome, smoker = ("ill", "well")[number % 2], ("yes", "no")[number % 3 % 2]
            age = "" if number % 11 == 10 else f"{random.normal(50 + older + 9 * (number % 2), 9):.1f}"
            pressure = f"{random.normal(120 - 8 * (number % 2), 10):.0f}"
            cells = {"age": age, "smoker": smoker, "pressure": pressure, "outcome": outcome}
            lines.append(",".join(cells[name] for name in lines[0].split(",")))
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n")
    return folder


def asked(tables: Path, method: str = "fedavg", **changes: Any) -> Experiment:
    data = {"source": "table", "path": str(tables / "*.csv"), "label": "outcome", "client": "@file"}
    data |= {"missing": "mean", **changes.pop("data", {})}
    settings = {"rounds": 3, "cohort": 2, "model": "logistic", "split": {"test": 0.3, "validation": 0.2}}
    return Experiment.of(
        {**settings, "method": method, "data": data, "local": {"lr": 0.1, "batch": 8}, **changes}
    )


def clients(tables: Path, out: Path, privacy: dict[str, str]) -> InProcess:
    contexts = {}
    for number, site in enumerate(privacy):
        own = {"data": str(tables / f"{site}.csv"), "name": site, "keep": str(out / "keep")}
        own |= {"privacy": privacy[site]} if privacy[site] else {}
        contexts[FIRST + number] = Context(1, FIRST + number, own, RecordDict(), {})
    return InProcess(contexts)
