"""From recorded runs to the table of evidence that ``fedcohort advise`` looks things up in."""

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from fedcohort import __version__
from fedcohort.runs.advice.evidence import BASE, ERROR, FEATURES, GAIN, NAMES
from studies.advice_runs import LAST, LOCAL, ROWS, SETTINGS, recorded_by

Rows = Sequence[Mapping[str, str]]


def evidence_rows(federations: Rows, runs: Rows) -> list[dict[str, str]]:
    """A row for each federation on which every method was tried, as
    :mod:`fedcohort.runs.advice.evidence` reads it."""
    scores: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for run in runs:
        own = scores[*(run[key] for key in NAMES), run["method"]]
        if run["accuracy"]:  # else the method refused
            own[run["seed"]] = float(run["accuracy"])
    methods = list(dict.fromkeys(run["method"] for run in runs))
    seen: dict[tuple[str, ...], list[Mapping[str, str]]] = defaultdict(list)
    for row in federations:
        if row[FEATURES[0]]:
            seen[tuple(row[key] for key in NAMES)].append(row)
    rows = []
    for case, described in seen.items():
        kept = {method: (*recorded_by(case, method), method) for method in methods}
        if all(key in scores for key in kept.values()):
            means = {name: f"{np.mean([float(row[name]) for row in described]):.4g}" for name in FEATURES}
            base = scores[kept[BASE]]
            gains = dict(pair for method, key in kept.items() for pair in _gain(method, scores[key], base))
            mean = f"{np.mean(list(base.values())):.4f}"
            rows.append({**dict(zip(NAMES, case, strict=True)), **means, BASE: mean, **gains})
    return rows


def _gain(method: str, own: Mapping[str, float], base: Mapping[str, float]) -> Iterable[tuple[str, str]]:
    """The mean over common seeds, and its standard error; nothing where there is none."""
    gaps = [own[seed] - base[seed] for seed in own if seed in base]
    yield GAIN + method, f"{np.mean(gaps):.4f}" if gaps else ""
    yield ERROR + method, f"{np.std(gaps, ddof=1) / len(gaps) ** 0.5:.4f}" if len(gaps) > 1 else ""


def about(
    rows: Sequence[Mapping[str, str]], runs: Rows, rates: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    """How the table was made."""
    of_methods: dict[str, dict[str, float]] = defaultdict(dict)
    for (data, method), rate in rates.items():
        of_methods[method][data] = rate
    return {
        "version": __version__,
        "command": "python -m studies.advice_grid --data DIR",
        "federations": len(rows),
        "runs": len(runs),
        "seeds": sorted({int(run["seed"]) for run in runs}),
        "rows": ROWS,
        "last": LAST,
        "settings": {**SETTINGS, "local": LOCAL},
        "rates": dict(of_methods),
    }


def write(folder: Path, rows: Sequence[Mapping[str, str]], story: Mapping[str, Any]) -> None:
    with (folder / "evidence.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (folder / "evidence.toml").write_text(tomli_w.dumps(story), encoding="utf-8")
