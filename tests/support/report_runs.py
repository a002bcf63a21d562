"""Runs for the tests of reports: a small real comparison, and directories written by hand."""

import csv
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w

from fedcohort.cli.progress import Silent
from fedcohort.core.evaluate import Row
from fedcohort.data.revealed import Revealed
from fedcohort.runs.about import ABOUT, About
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import environment, run_name
from fedcohort.runs.stored import ROSTER, RunDir, RunSettings, runs_of

TINY: dict[str, Any] = {
    "rounds": 4,
    "cohort": 3,
    "seeds": [0, 1, 2],
    "data": {"source": "synthetic", "samples": 240, "classes": 4, "features": 5},
    "partition": {"name": "dirichlet", "clients": 8, "alpha": 0.3, "min_size": 8},
    "model": "logistic",
    "local": {"batch": 8},
}


def run_tiny(out: Path, *methods: str, **changes: Any) -> Path:
    """The directory of a real comparison."""
    experiment = Experiment.of({**TINY, "method": list(methods), **changes}, "tiny")
    return compare(experiment, out, Silent())[0]


def run_swept(folder: Path) -> Path:
    """A comparison of two methods, two alphas and two seeds."""
    asked = {"seeds": [0, 1], "evaluate": {"clients_every": 2}}
    first = run_tiny(folder, "fedavg", "fedprox", **asked)
    second = run_tiny(folder, "fedavg", "fedprox", partition={**TINY["partition"], "alpha": 3.0}, **asked)
    for run in runs_of(second):
        shutil.move(run, first)
    return first


def a_home(method: str, **changes: Any) -> RunDir:
    """A run directory that is nowhere, of the first method and seed."""
    experiment = Experiment.of({**TINY, "method": [method], **changes})
    asked, (seed, *_), task = experiment.methods[0], experiment.seeds, experiment.task(experiment.seeds[0])
    table = json.loads(json.dumps(experiment.table(asked, seed)))
    about = About.of(asked, task, task.profile(asked))
    return RunDir(Path("nowhere"), RunSettings(table, Path("nowhere")), about)


def write_run(out: Path, experiment: Experiment, rows: Iterable[Row]) -> Path:
    """A directory as a complete run leaves it, without its checkpoint, whose table holds these rows."""
    method, seed = experiment.methods[0], experiment.seeds[0]
    table = experiment.table(method, seed)
    directory = out / run_name(table)
    directory.mkdir(parents=True)
    (directory / "config.toml").write_text(tomli_w.dumps(table))
    task = experiment.task(seed)
    profile = task.profile(method)
    (directory / ABOUT).write_text(About.of(method, task, profile).text())
    Revealed.of(task.federation, profile.counts, profile.summaries).write(directory / ROSTER)
    facts = {**environment(), "fingerprint": experiment.federation(seed).fingerprint(), "seconds": 12.5}
    (directory / "env.json").write_text(json.dumps(facts))
    with (directory / "table.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([Row._fields, *rows])
    (directory / "result.json").write_text("{}")
    return directory


def hospital_table(path: Path) -> Path:
    """Samples of four clients whose names, like a class's, try to be more than names."""
    names = [
        "<img src=x onerror=window.broken=1>",
        "</script><script>window.broken=1</script>",
        "north",
        "south",
    ]
    lines = ["site,age,dose,outcome"]
    for number in range(160):
        site, sick = number % 4, (number // 4) % (2 if number % 4 < 2 else 5) == 0
        label = "<b>ill</b>" if sick else "well & fine"
        lines.append(f'"{names[site]}",{40 + 7 * sick + number % 5},{number % 3 + 2 * sick},"{label}"')
    path.write_text("\n".join(lines) + "\n")
    return path


def large_run(out: Path, method: str = "fedavg", seed: int = 0, cohort: int = 100) -> Path:
    """A run of made-up numbers, the size of a large study; two groups, the second from round 100 on."""
    clients, rounds = 1000, 500
    data = {"source": "synthetic", "samples": 20 * clients, "classes": 10, "features": 2}
    partition = {"name": "dirichlet", "clients": clients, "alpha": 0.3, "min_size": 1}
    asked = {"rounds": rounds, "cohort": cohort, "data": data, "partition": partition, "model": "logistic"}
    experiment = Experiment.of({**asked, "method": [method], "seeds": [seed]}, "large")
    names = experiment.federation(seed).clients
    rows = []
    for number in range(1, rounds + 1):
        for scope in ("global", "personal"):
            rows.append(Row(number, scope, "", "", "accuracy", 0.9 - 0.8 / number))
        for metric, value in (("bytes_up", 4e6), ("bytes_down", 5e6), ("cohort_entropy", 0.006)):
            rows.append(Row(number, "round", "", "", metric, value * number))
        for place in range(cohort):
            client = (number * 37 + place * 7) % clients
            group = str(int(number >= 100 and client % 2))
            rows.append(Row(number, "cohort", names[client], group, "trained", 1.0))
    for client, name in enumerate(names):
        where = (rounds, "personal", name, str(client % 2))
        rows += [Row(*where, "accuracy", 0.5 + client % 50 / 100), Row(*where, "test_size", 40.0)]
    return write_run(out, experiment, rows)
