"""What came out of runs, in one table: of a comparison for spreadsheets, of any runs for pandas."""

import csv
import io
import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedcohort.runs.outcomes.conditions import Placed, keys_of, place, settings, swept, text
from fedcohort.runs.outcomes.standings import Outcome
from fedcohort.runs.recorder import disk_mistakes
from fedcohort.runs.stored import ASKED, CONFIG, TABLE, RunDir, runs_in
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.errors import UserError
from fedcohort.util.names import safe_name

if TYPE_CHECKING:
    from pandas import DataFrame

FIRST = ("method", "seed", "run", "complete")  # columns before the settings
LAST = ("round", "metric", "client", "group", "value")


def results(directories: str | Path | Sequence[str | Path]) -> "DataFrame":
    """Every number of the runs in these directories, each of one run or of a comparison, as a long frame.

    A row is one number of one run. Its columns: ``method``, ``seed``, ``run`` (the directory's name),
    ``complete``, every setting as in ``partition.alpha``, then ``round``, ``metric`` as in
    ``global.accuracy``, ``client`` and ``group`` (missing where a number is about all of them), ``value``.
    """
    import pandas as pd

    several = [directories] if isinstance(directories, str | Path) else directories
    left_out: list[str] = []
    runs = runs_in(map(Path, several), left_out)
    for why in dict.fromkeys(left_out):
        warnings.warn(f"a run is left out: {why}", RuntimeWarning, stacklevel=2)
    if not runs:
        raise UserError(left_out[0] if left_out else "there is no run to read: name a directory of runs")
    told = [settings(run.settings) for run in runs]
    keys = [key for key in keys_of(told) if key not in (*FIRST, *LAST, "seeds")]
    heads = []
    for run, placed, own in zip(runs, placed_in(runs), told, strict=True):
        about = (placed.method, run.settings.seed, run.directory.name, run.complete)
        heads.append({**dict(zip(FIRST, about, strict=True)), **{key: own.get(key) for key in keys}})
    numbers = [_numbers(run) for run in runs]
    of_each = pd.DataFrame(heads).loc[np.repeat(np.arange(len(runs)), [len(own) for own in numbers])]
    return pd.concat([of_each.reset_index(drop=True), pd.concat(numbers, ignore_index=True)], axis="columns")


def placed_in(runs: Sequence[RunDir], wanted: Sequence[str] = ()) -> list[Placed]:
    """Runs among each other, with what their comparisons ask to vary."""
    homes = dict.fromkeys(run.directory.parent for run in runs)
    return place([run.settings for run in runs], [*wanted, *(key for home in homes for key in swept(home))])


def write_summary(home: Path, outcomes: Sequence[Outcome]) -> None:
    """``table.csv`` of a comparison: a line for each run, with its conditions and its last numbers."""
    if not (home / ASKED).exists() or (home / CONFIG).exists():
        return  # a single run has a table of its own
    conditions = keys_of(outcome.settings for outcome in outcomes)
    metrics = list(dict.fromkeys(key for outcome in outcomes for key in outcome.metrics))
    lines: list[list[object]] = [["method", "seed", *map(safe_name, conditions), *map(safe_name, metrics)]]
    for outcome in outcomes:
        told = [outcome.settings.get(key) for key in conditions]
        own = ["" if value is None else text(value) for value in told]
        numbers = [outcome.metrics.get(key, math.nan) for key in metrics]
        known = ["" if math.isnan(number) else number for number in numbers]
        lines.append([safe_name(outcome.method), outcome.seed, *own, *known])
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(lines)
    with disk_mistakes(home):
        write_atomically(home / TABLE, out.getvalue().encode())


def _numbers(run: RunDir) -> "DataFrame":
    import pandas as pd

    complete = run.complete
    rows = run.rows(growing=not complete) if complete or (run.directory / TABLE).exists() else []
    return pd.DataFrame(
        {
            "round": np.array([row.round for row in rows], dtype=np.int64),
            "metric": [row.key for row in rows],
            "client": pd.Series([row.client or None for row in rows], dtype="str"),
            "group": pd.array([int(row.group) if row.group else None for row in rows], dtype="Int64"),
            "value": np.array([row.value for row in rows]),
        }
    )
