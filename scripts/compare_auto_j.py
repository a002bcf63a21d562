"""FedLECC with J chosen every round against every fixed J: accuracy on several partitions, as Markdown.

    .venv/bin/python scripts/compare_auto_j.py [--data DIR] [--seeds 5] [--write]

``--data`` adds Fashion-MNIST from a folder that holds it. ``--write`` puts the tables into
docs/fedlecc-auto-j.md. A few minutes without Fashion-MNIST, as many again with it.
"""

import argparse
import re
import statistics
from pathlib import Path
from typing import NamedTuple

import torch

import fedcohort as fc
from fedcohort.util.expression import parse

PAGE = Path(__file__).parents[1] / "docs" / "fedlecc-auto-j.md"
AUTO = "fedlecc(clusters_per_round='auto')"
FIXED = {**{f"J = {top}": f"fedlecc(clusters_per_round={top})" for top in (1, 2, 3, 4)}, "J = m": "fedlecc"}
METHODS = {"auto": AUTO, **FIXED, "fedavg, for comparison": "fedavg"}


class Setting(NamedTuple):
    """What is trained on, and for how long."""

    source: str
    partition: str
    cohort: int
    rounds: int


SETTINGS = (
    Setting("digits", "dirichlet(clients=30, alpha=0.1)", 6, 60),
    Setting("digits", "classes_per_client(clients=40, classes=2)", 6, 60),
    Setting("synthetic(samples=3000, spread=1.5)", "similarity(clients=40, similarity=0.0)", 6, 60),
)
FASHION = Setting("fashion_mnist", "dirichlet(clients=100, alpha=0.1)", 10, 40)


class Curve(NamedTuple):
    """Global accuracy of one run."""

    last: float  # mean of the last five evaluations
    mean: float  # over all evaluations: higher when it learns sooner


def measure(setting: Setting, method: str, seed: int, root: str | None) -> Curve:
    ((source, options),), ((protocol, parameters),) = parse(setting.source), parse(setting.partition)
    data = fc.load(source, root, **options)
    federation = fc.federate(data, fc.partitioner(protocol, **parameters), seed=seed)
    local = fc.Local(lr=0.1, epochs=2, batch=16) if root is None else fc.Local(lr=0.05, epochs=1, batch=32)
    task = fc.Task.of(federation, "mlp", {"widths": [64]}, local=local, cohort=setting.cohort, seed=seed)
    rows = fc.run(method, task, setting.rounds, fc.Evaluation(every=setting.rounds // 20)).rows
    curve = [row.value for row in rows if row.key == "global.accuracy"]
    return Curve(statistics.fmean(curve[-5:]), statistics.fmean(curve))


def table(setting: Setting, seeds: int, root: str | None) -> str:
    """Every method's accuracy, and how much auto is above it with the same seed."""
    curves = {name: [measure(setting, m, seed, root) for seed in range(seeds)] for name, m in METHODS.items()}
    lines = [
        f"### {setting.source}, {setting.partition}\n",
        f"m = {setting.cohort}, {setting.rounds} rounds, {seeds} seeds.\n",
        "| J | last accuracy | mean accuracy | auto is better by, last | mean |",
        "|---|---|---|---|---|",
    ]
    for name, own in curves.items():
        cells = [spread([getattr(curve, key) for curve in own]) for key in Curve._fields]
        for key in Curve._fields:
            gaps = [getattr(a, key) - getattr(b, key) for a, b in zip(curves["auto"], own, strict=True)]
            cells.append("" if name == "auto" else spread(gaps, "+"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float], sign: str = "") -> str:
    """Mean and standard error, in percent or percentage points."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values) * 100:{sign}.1f} ± {error * 100:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", help="a folder with Fashion-MNIST")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE.name}")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    tables = [table(setting, asked.seeds, None) for setting in SETTINGS]
    if asked.data:
        tables.append(table(FASHION, max(asked.seeds // 2, 2), asked.data))
    text = "\n\n".join(tables)
    print(text)
    if asked.write:
        page = PAGE.read_text(encoding="utf-8")
        new = re.sub(r"(?s)(<!-- tables -->\n).*(<!-- end -->)", lambda m: f"{m[1]}\n{text}\n\n{m[2]}", page)
        PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
