"""Directories of complete runs with the numbers that a test wants, written by hand."""

import json
from pathlib import Path
from typing import Any

import tomli_w

from fedcohort.runs.about import ABOUT, About
from fedcohort.runs.stored import ASKED, RunSettings

HEADER = "round,scope,client,group,metric,value\n"


def a_table(method: str, seed: int = 0, label: str = "", **changes: Any) -> dict[str, Any]:
    """The settings of a run; ``partition__alpha=0.5`` changes one of a section."""
    entry = {"name": method, **({"label": label} if label else {})}
    table: dict[str, Any] = {"name": "e", "rounds": 4, "cohort": 2, "seeds": [seed], "method": [entry]}
    table |= {"partition": {"name": "dirichlet", "alpha": 0.1}, "local": {"lr": 0.1}}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        table[section] = {**table[section], name: value} if name else value
    return table


def asked(method: str, seed: int = 0, label: str = "", **changes: Any) -> RunSettings:
    return RunSettings(a_table(method, seed, label, **changes), Path("config.toml"))


def a_result(home: Path, method: str, seed: int, curve: list[float], label: str = "", **changes: Any) -> Path:
    """A complete run below ``home`` whose global accuracy by round is ``curve``, its loss 1 minus that."""
    directory = home / f"run-{len(list(home.glob('run-*'))) if home.exists() else 0:03d}"
    directory.mkdir(parents=True)
    (home / ASKED).write_text('method = ["fedavg", "fedprox"]\nseeds = [0]\n')
    table = a_table(method, seed, label, **changes)
    (directory / "config.toml").write_text(tomli_w.dumps(table))
    (directory / ABOUT).write_text(About(grouping="one", pooled=method == "centralised").text())
    facts = {"versions": {}, "machine": "m", "command": ["fedcohort"], "started": "2026"}
    fingerprint = f"data of seed {seed}, {table['partition']}"
    (directory / "env.json").write_text(json.dumps({**facts, "fingerprint": fingerprint}))
    rows = [
        f"{number},global,,,accuracy,{value}\n{number},global,,,loss,{1 - value}\n"
        for number, value in enumerate(curve, 1)
    ]
    (directory / "table.csv").write_text(HEADER + "".join(rows))
    final = {"global.accuracy": curve[-1], "global.loss": 1 - curve[-1], "groups": 1.0}
    (directory / "result.json").write_text(json.dumps(final))
    return directory
