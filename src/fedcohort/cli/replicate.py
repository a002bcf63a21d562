"""``replicate``: tables of papers made again, the paper's numbers and ours side by side."""

import json
import os
import sys
import time
import warnings
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
        typer.Argument(help="The table, as paper/table, or 'paper/*'; without it all are listed."),
    ] = None,
    scale: Annotated[
        Literal["paper", "small", "smoke"],
        typer.Option(help="The paper's protocol, a scaled test of hours, or seconds to see that it runs."),
    ] = "paper",
    cells: Annotated[
        str, typer.Option(help="Only these: 'fedavg,fedlecc@fmnist' or '*@alpha=0.05' (method@conditions).")
    ] = "*",
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="How many, else the file's.")] = None,
    budget: Annotated[str | None, typer.Option(help="Begin no run that would end after 30m, 2h, ...")] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Only measure a few rounds, to tell what the rest would cost.")
    ] = False,
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
    results.csv at once and never run again; what is stopped goes on later. Of several tables those runs
    of all go first.

    [bold]Example[/bold]: fedcohort replicate fedlecc/table2 --cells '*@fmnist' --seeds 3 --budget 2h
    """
    from fedcohort.cli.replication_tables import listing, show_listing, show_table, table_json
    from fedcohort.runs.comparison import FailedRunsError
    from fedcohort.runs.replication.folders import folders
    from fedcohort.runs.replication.replication import Replication

    seconds = seconds_of(budget, "--budget")
    if data is not None:
        os.environ["FEDCOHORT_DATA"] = str(data.resolve())  # not a setting: numbers do not depend on it
    found = folders(papers, table, trust)
    if table is None:
        entries: list[dict[str, Any]] = []
        wrong: list[str] = []
        for each in found:
            try:
                every = [Replication(each, own, out) for own in LISTED if own in each.scales]
                for asked in every if probe else ():
                    _watched(asked, quiet, seconds, probe)
                entries += [listing(asked) for asked in every]
            except UserError as error:  # one odd folder hides no other
                wrong.append(str(error))
        if wrong and not entries:
            raise UserError(wrong[0])
        for why in wrong:
            warnings.warn(f"left out: {why}", RuntimeWarning, stacklevel=1)
        print(json.dumps(entries)) if as_json else show_listing(entries)
        return
    if len(found) > 1 and cells != "*":
        raise UserError("--cells are those of one table: name one, or leave --cells out")
    chosen = [each for each in found if len(found) == 1 or scale in each.scales]
    tables = [Replication(each, scale, out, seeds, cells) for each in chosen]
    if not tables:
        raise UserError(f"none of {counted(len(found), 'table')} has the scale '{scale}'")
    deadline, failures = time.monotonic() + seconds, []
    turns = [each.of_claims for each in tables] if len(tables) > 1 else []
    for asked in [*turns, *tables]:
        try:
            _watched(asked, quiet, deadline - time.monotonic(), probe)
        except FailedRunsError as error:
            failures.append(error)
    if as_json:
        told = [table_json(asked) for asked in tables]
        print(json.dumps(told if len(found) > 1 else told[0]))
    else:
        for asked in tables:
            show_table(asked)
    if failures:
        raise failures[-1]
    if (left := sum(len(asked.open) for asked in tables)) and not as_json:
        print(f"{counted(left, 'run')} left: the same command goes on.", file=sys.stderr)


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
