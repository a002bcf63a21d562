"""``results.csv``: what came out, a line for each run."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from fedcohort.data.sources import places_in
from fedcohort.runs.comparison import PlannedRun
from fedcohort.runs.experiment import config_hash
from fedcohort.runs.replication.folders import FIRST, LAST, Cell, Folder, number, rows_of
from fedcohort.runs.stored import NUMBERS, RESTORE, read_environment, read_result
from fedcohort.util.checkpoint import write_atomically
from fedcohort.util.filelock import held
from fedcohort.util.files import damaged


class ResultRow(NamedTuple):
    """One run that is complete."""

    about: dict[str, str]  # the columns of every results.csv
    values: dict[str, float]

    @property
    def cell(self) -> Cell:
        return Cell(self.about["conditions"], self.about["method"])

    @property
    def config(self) -> str:
        """What names the settings that it was made with."""
        return self.about["config"]

    @property
    def seed(self) -> int:
        return int(self.about["seed"])

    @property
    def key(self) -> tuple[str, ...]:
        """Of the same run there is one line."""
        return tuple(self.about[name] for name in (*FIRST, "config"))


def read_results(path: Path) -> list[ResultRow]:
    """All of a file's; none if there is no file."""
    if not path.exists():
        return []
    found = []
    for row in rows_of(path):
        about = {key: row.pop(key, "") for key in (*FIRST, *LAST)}
        for key in ("seed", "rounds", "seconds"):
            number(about[key], path)
        check_seed(about["seed"], path)
        found.append(ResultRow(about, {key: number(text, path, NUMBERS) for key, text in row.items()}))
    return found


def check_seed(text: str, path: Path) -> None:
    if not text.removeprefix("-").isdecimal():
        raise damaged(path, f"{text!r:.40} is no seed")


def add_results(path: Path, new: Sequence[ResultRow]) -> None:
    """Beside those that are there, at once or not at all; what another process has written already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.parent):
        every = list({each.key: each for each in (*new, *read_results(path))}.values())
        metrics = list(dict.fromkeys(key for result in every for key in result.values))
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, [*FIRST, *metrics, *LAST], restval="", lineterminator="\n")
        writer.writeheader()
        for result in every:
            known = {key: repr(value) for key, value in result.values.items() if not math.isnan(value)}
            writer.writerow({**result.about, **known})
        write_atomically(path, out.getvalue().encode())


def settings_hash(table: dict[str, Any]) -> str:
    """Of a run, wherever its data are and the command was given: a path of the working directory is absolute
    by now."""
    data = {key: value for key, value in table["data"].items() if key != "root"}
    for key in places_in(data).keys() & data.keys():
        data[key] = str(data[key]).removeprefix(f"{Path.cwd().resolve()}/")
    return config_hash({**table, "data": data})


def result_of(folder: Folder, scale: str, cell: Cell, job: PlannedRun) -> ResultRow:
    """What the directory of a complete run tells."""
    numbers, made = read_result(job.directory) or {}, read_environment(job.directory, RESTORE)
    told = (
        *cell, scale, job.seed, job.experiment.rounds, made["seconds"], settings_hash(job.table),
        made["fingerprint"], made["versions"]["fedcohort"],
        f"fedcohort replicate {quote(folder.name)} --scale {scale} --cells {quote(cell.short(folder.paper))}",
    )  # fmt: skip
    about = dict(zip((*FIRST, *LAST), map(str, told), strict=True))
    return ResultRow(about, {key: numbers.get(key, math.nan) for key in folder.metrics})
