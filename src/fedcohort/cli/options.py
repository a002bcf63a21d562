"""Options that several commands share."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from fedcohort.util.errors import UserError

MANY = 1000  # runs that are worth a question
DAYS = 10_000  # the longest time that anybody waits
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result and warnings.")]
Out = Annotated[
    Path, typer.Option("--out", "-o", help="Where run directories go; nothing there is overwritten.")
]
Source = Annotated[
    str, typer.Argument(help="A table (CSV, Parquet), an experiment file (TOML) or a data source by name.")
]
Partition = Annotated[
    str | None, typer.Option(help="How to deal a data source: 'dirichlet(clients=30, alpha=0.1)'.")
]
Client = Annotated[str | None, typer.Option(help="The column that names the client; @file: the file does.")]
Label = Annotated[
    str | None, typer.Option(help="The label column: the table has one row per sample, not per client.")
]
OnRay = Annotated[
    str | None, typer.Option("--ray", help="Run on a Ray cluster: local (a private one), auto, or host:port.")
]
Track = Annotated[
    list[str] | None, typer.Option(help="Also tell tensorboard, mlflow or wandb: --track wandb (repeatable).")
]


Trust = Annotated[
    bool, typer.Option("--trust", help="With --resume: execute the modules that the directory's files name.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Start very many runs without asking.")]


def refuse_many(runs: int, yes: bool) -> None:
    """Asks before lists on lists are run; where nobody can be asked, it has to be said."""
    if runs <= MANY or yes:
        return
    if not (sys.stdin.isatty() and typer.confirm(f"That makes up to {runs:,} runs. Go on?", err=True)):
        raise UserError(f"these settings make up to {runs:,} runs: shorten the lists, or add --yes")


def seconds_of(text: str | None, option: str) -> float:
    """A time like 2h; without one, for ever."""
    if text is None:
        return float("inf")
    fits = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhd])", text.strip())
    if fits is None or float(fits[1]) == 0:
        raise UserError(f"{option} {text}: write a time like 90s, 30m or 2h")
    seconds = float(fits[1]) * SECONDS[fits[2]]
    if seconds > DAYS * SECONDS["d"]:
        raise UserError(f"{option} {text}: give at most {DAYS:,} days")
    return seconds
