"""``init``: from a table to an experiment file that runs as it is."""

import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcohort.cli.options import Client, Partition
from fedcohort.util.errors import UserError
from fedcohort.util.names import safe_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from fedcohort.cli.new_experiment import Draft
    from fedcohort.data.survey import Seen

SHOWN = 15  # columns that are read, and that are not
NAMED = 8  # clients, and classes


def init(
    table: Annotated[str, typer.Argument(help="CSV, also gzipped, or Parquet; several: 'hospitals/*.csv'.")],
    client: Client = None,
    label: Annotated[
        str | None, typer.Option(help="The column with the answer that is to be learnt.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The file to write; one that exists is left as it is.")
    ] = Path("experiment.toml"),
    partition: Partition = None,
    feature: Annotated[
        list[str] | None, typer.Option(help="Read this column, whatever it looks like (repeatable).")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave this column out, whatever it looks like (repeatable).")
    ] = None,
    bins: Annotated[
        str | None,
        typer.Option(
            help="Classes of a label that is an amount: 4 of equal size, or between numbers: 18,65."
        ),
    ] = None,
    category: Annotated[
        bool, typer.Option("--category", help="The label is a category, however many numbers it has.")
    ] = False,
) -> None:
    """Look at a table and write an experiment file for it, every choice with its reason.

    fedcohort init patients.csv --client hospital --label outcome

    [bold]One file per client[/bold]: fedcohort init 'hospitals/*.csv' --client @file --label outcome

    [bold]An amount to predict[/bold]: add --bins 4, or the numbers between classes: --bins 18,65

    [bold]Without real clients[/bold]: --partition "dirichlet(clients=20, alpha=0.3)" deals the rows.

    Nothing is trained. Row numbers, columns that are nearly unique and those that repeat the label are left
    out, unless you name them with --feature.
    """
    from fedcohort.cli.drafting import Asked, draft_of
    from fedcohort.cli.new_experiment import experiment_text
    from fedcohort.cli.tables import results
    from fedcohort.runs.experiment import Experiment

    if out.exists():
        raise UserError(f"{out} exists already and is left as it is: choose another --out")
    draft = draft_of(Asked(table, client, label, partition, feature or [], exclude or [], bins, category))
    text = experiment_text(draft)
    Experiment.of(tomllib.loads(text), out.stem).task(0)  # what is written runs as it is
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): choose another --out") from None
    show(draft, results)
    results.print(f"{out} is written. Look at it, then: fedcohort run {shlex.quote(str(out))}", markup=False)


def show(draft: "Draft", console: "Console") -> None:
    """How the table was understood."""
    from rich.table import Table
    from rich.text import Text

    federation = draft.federation
    head = Table.grid(padding=(0, 2))
    used = int(federation.sizes.sum())
    head.add_row("rows", f"{used:,}" if used == draft.rows else f"{used:,} of {draft.rows:,}")
    head.add_row("clients", Text(f"{federation.num_clients}: {_some(federation.clients)}"))
    head.add_row("classes", Text(f"{federation.num_classes}: {_some(federation.classes)}"))
    for note in draft.notes:
        head.add_row("note", Text(note))
    console.print(head, _columns(draft.columns))


def _columns(columns: "Sequence[Seen]") -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("column", overflow="fold", max_width=28)
    table.add_column("is read as", no_wrap=True)
    table.add_column("what is in it", overflow="fold")
    table.add_column("empty", justify="right")
    read = [seen for seen in columns if seen.read]
    left = [seen for seen in columns if not seen.read]
    for seen in (*read[:SHOWN], *left[:SHOWN]):
        what = seen.what if seen.read else seen.reason
        style = "" if seen.read else "dim"
        cells = safe_name(seen.name), seen.kind if seen.read else "left out", what
        table.add_row(*map(Text, cells), f"{seen.empty:,}" if seen.empty else "", style=style)
    for many, word in ((read, "are read"), (left, "are left out")):
        if len(many) > SHOWN:
            table.add_row(Text(f"... {len(many) - SHOWN} more {word}"), "", _kinds(many[SHOWN:]), "")
    return table


def _kinds(columns: "Sequence[Seen]") -> str:
    return ", ".join(f"{number} {kind}" for kind, number in Counter(seen.kind for seen in columns).items())


def _some(names: "Sequence[str]") -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(safe_name(name) for name in names[:NAMED]) + more
