"""``fedcohort table``: runs as a table for a paper."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    text = "text"
    csv = "csv"
    latex = "latex"
    markdown = "markdown"


def table(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs, or of whole comparisons.")],
    format_: Annotated[Format, typer.Option("--format", help="For a terminal, a spreadsheet, a paper.")] = (
        Format.text
    ),
    rows: Annotated[str, typer.Option(help="What tells rows apart: settings with commas.")] = "method",
    cols: Annotated[
        str | None, typer.Option(help="What tells columns apart: --cols partition.alpha,local.lr.")
    ] = None,
    metric: Annotated[str, typer.Option(help="Which number, as in result.json.")] = "global.accuracy",
    over: Annotated[
        str, typer.Option(help="Of the last round, of the best, or the mean of last:10.")
    ] = "last",
    against: Annotated[str | None, typer.Option(help="Test every method against this one.")] = None,
) -> None:
    """Mean and deviation over seeds, a row for each method and a column for each condition, as papers print.

    [bold]Example[/bold]: fedcohort table runs/e-001 --format latex --over last:10 --against fedavg

    Without --cols, columns are the settings in which the runs of a comparison differ.
    """
    from fedcohort.cli.table_formats import FORMATS
    from fedcohort.runs.outcomes.tabulate import tabulate

    columns = None if cols is None else _keys(cols)
    found = tabulate(runs, _keys(rows), columns, metric, over, against)
    print(FORMATS[format_](found))


def _keys(text: str) -> list[str]:
    return [key for word in text.split(",") if (key := word.strip())]
