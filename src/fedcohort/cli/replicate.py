"""``replicate``: tables of papers made again, the paper's numbers and ours side by side."""

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fedcohort.cli.options import AsJson, Out, Quiet, seconds_of
from fedcohort.util.errors import UserError
from fedcohort.util.words import counted

if TYPE_CHECKING:
    from fedcohort.runs.replication.replication import Replication

LISTED = ("paper", "small")


def replicate(
    table: Annotated[
        str | None,
        typer.Argument(help="The table, as paper/table, or all of a paper; without it all are listed."),
    ] = None,
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        typer.Option(help="The paper's protocol, a scaled test of hours, or seconds to see that it runs."),
    ] = "paper",
    cells: Annotated[
        str,
        typer.Option(help="Run only these: 'fedavg,fedlecc@fmnist' or '*@alpha=0.05' (method@conditions)."),
    ] = "*",
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="How many, else the file's.")] = None,
    budget: Annotated[str | None, typer.Option(help="Begin no run that would end after 30m, 2h, ...")] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Only measure a few rounds, to tell what the rest would cost.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Run nothing: only show what is known.")] = False,
    papers: Annotated[Path, typer.Option(help="The folder of papers' tables.")] = Path("papers"),
    data: Annotated[Path | None, typer.Option(help="Where the data sets are, else $FEDCOHORT_DATA.")] = None,
    out: Out = Path("runs"),
    trust: Annotated[
        bool, typer.Option("--trust", help="Execute the modules and programs that the folder's files name.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Make the tables of papers again: list them, or run what is missing of one and show both numbers.

    Runs that claims depend on go first, then the cheapest. What is complete is written to the table's
    results.csv at once and never run again; what is stopped goes on later. With several tables, the runs
    that claims need go first in all of them.

    [bold]Example[/bold]: fedcohort replicate fedlecc/table2 --cells '*@fmnist' --seeds 3 --budget 2h
    """
    from fedcohort.runs.replication.folders import folders
    from fedcohort.runs.replication.replication import Replication

    seconds = seconds_of(budget, "--budget")
    if data is not None:
        if not data.is_dir():
            raise UserError(f"--data {data}: there is no such folder")
        os.environ["FEDCOHORT_DATA"] = str(data.resolve())  # not a setting: numbers do not depend on it
    found = folders(papers, table, trust)
    if table is None:
        if cells != "*" or seeds is not None or budget is not None:
            raise UserError("--cells, --seeds and --budget go with a table: name one, or 'paper/*'")
        _list([[Replication(each, own, out) for own in LISTED] for each in found], quiet, probe, as_json)
        return
    several = table not in {each.name for each in found}  # a pattern, even if it fits one table alone
    if several and cells != "*":
        raise UserError("--cells are those of one table: name one, or leave --cells out")
    every = [Replication(each, scale, out, seeds, cells) for each in found]
    if not several:
        every[0].check()
    failed: dict[str, Exception] = {}
    tables = [asked for asked in every if _has_scale(asked, failed)]
    if not tables and not failed:
        raise UserError("no such table has this scale: 'fedcohort replicate' lists them")
    if not show:
        _make(tables, several, seconds, quiet, probe, failed)
    only = "--show" if show else "--probe" if probe else ""
    goes_on = f"without {only} they are made" if only else "the same command goes on"
    _show(tables, failed, several, goes_on, as_json)


def _list(tables: "Sequence[Sequence[Replication]]", quiet: bool, probe: bool, as_json: bool) -> None:
    """Which there are, each at all its scales; an odd one hides no other."""
    from fedcohort.cli.replication_tables import listing, show_listing

    entries: list[dict[str, Any]] = []
    wrong: list[str] = []
    for scales in tables:
        try:
            every = [asked for asked in scales if asked.has_scale]
            for asked in every if probe else ():
                try:
                    _watched(asked, quiet, math.inf, probe)
                except UserError as error:  # what is known of it is told
                    wrong.append(f"not probed: {error}")
            entries += [listing(asked) for asked in every]
        except UserError as error:
            wrong.append(f"left out: {error}")
    if wrong and not entries:
        raise UserError(wrong[0].removeprefix("left out: "))
    for why in wrong:
        warnings.warn(why, RuntimeWarning, stacklevel=1)
    print(json.dumps(entries)) if as_json else show_listing(entries)


def _has_scale(asked: "Replication", failed: dict[str, Exception]) -> bool:
    try:
        return asked.has_scale
    except UserError as error:
        failed[asked.folder.name] = error
        return False


def _make(
    tables: "Sequence[Replication]",
    several: bool,
    seconds: float,
    quiet: bool,
    probe: bool,
    failed: dict[str, Exception],
) -> None:
    """Of ``several`` first what claims need, then all; what ends one ends no other, and has ``failed``."""
    deadline = time.monotonic() + seconds
    for asked in [*(asked.of_claims for asked in tables if several), *tables]:
        try:
            _watched(asked, quiet, deadline - time.monotonic(), probe)
        except typer.Exit:  # somebody has stopped all of it
            raise
        except Exception as error:  # a method may be the user's own code
            failed[asked.folder.name] = error
        else:
            if not asked.open:  # else there may have been no time to try again
                failed.pop(asked.folder.name, None)


def _show(
    tables: "Sequence[Replication]", failed: dict[str, Exception], several: bool, goes_on: str, as_json: bool
) -> None:
    """All that is known of them, and what ended any."""
    from fedcohort.cli.board import duration
    from fedcohort.cli.replication_tables import show_table, table_json

    told: list[dict[str, Any]] = []
    left, seconds = 0, 0.0
    for asked in tables:
        try:
            told.append(table_json(asked)) if as_json else show_table(asked)
            left, seconds = left + len(asked.open), seconds + asked.seconds_left
        except UserError as error:
            failed.setdefault(asked.folder.name, error)
    if as_json and (several or told):
        print(json.dumps(told if several else told[0], allow_nan=False))
    _raise(failed, several)
    if left and not as_json:
        cost = "" if math.isnan(seconds) else f", about {duration(seconds)}"
        print(f"{counted(left, 'run')} left{cost}: {goes_on}.", file=sys.stderr)


def _raise(failed: dict[str, Exception], several: bool) -> None:
    """All of them in one error; a mistake that is nobody's sentence as it is."""
    for why in failed.values():
        if not isinstance(why, UserError):
            raise why
    if failed:
        told = [f"{name}: {why}" if several else str(why) for name, why in failed.items()]
        raise UserError("; ".join(told)) from next(iter(failed.values()))


def _watched(asked: "Replication", quiet: bool, seconds: float, probe: bool) -> None:
    """Carries out what is missing, or a few rounds of it."""
    from fedcohort.cli.progress import watcher_of
    from fedcohort.util.cpu import one_thread

    watcher: Any = watcher_of(len(asked.open), quiet)
    try:
        with one_thread():  # results must not depend on how many cores there are
            asked.probe(watcher) if probe else asked.run(watcher, seconds)
    except KeyboardInterrupt:
        print("Stopped; nothing is lost. The same command goes on.", file=sys.stderr)
        raise typer.Exit(130) from None
    finally:
        watcher.stop()
