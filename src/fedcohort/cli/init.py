"""``init``: from a table to an experiment file that runs as it is."""

import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcohort.cli.options import Client
from fedcohort.util.errors import UserError
from fedcohort.util.names import safe_name
from fedcohort.util.words import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from fedcohort.cli.drafting import Draft
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
    feature: Annotated[
        list[str] | None, typer.Option(help="Read this column, whatever it looks like (repeatable).")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the file: --set rounds=20 (repeatable).")
    ] = None,
) -> None:
    """Look at a table and write an experiment file for it, every choice with its reason.

    fedcohort init patients.csv --client hospital --label outcome

    [bold]One file per client[/bold]: fedcohort init 'hospitals/*.csv' --client @file --label outcome

    [bold]An amount to predict[/bold]: add --set data.bins=4, or --set 'data.bins=\\[18, 65]'

    [bold]Without real clients[/bold]: --set 'partition="dirichlet(clients=20, alpha=0.3)"' deals the rows.

    Nothing is trained. Row numbers, columns that are nearly unique and those that repeat the label are left
    out, unless you name them with --feature.
    """
    if out.exists():
        raise UserError(f"{out} exists already and is left as it is: choose another --out")
    from fedcohort.cli.commented import commented
    from fedcohort.cli.drafting import Asked, draft_of
    from fedcohort.cli.tables import results
    from fedcohort.runs.experiment import Experiment

    draft = draft_of(Asked(table, client, label, feature or [], overrides or []))
    head = "Written by 'fedcohort init'; every line may be changed, docs/experiment-file.md says to what."
    text = commented([head, *draft.verdict.sentences], draft.settings, draft.reasons)
    Experiment.of(tomllib.loads(text), out.stem).task(0)  # what is written runs as it is
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): choose another --out") from None
    _show(draft, results)
    results.print(f"{out} is written. Look at it, then: fedcohort run {shlex.quote(str(out))}", markup=False)


def _show(draft: "Draft", console: "Console") -> None:
    """How the table was understood."""
    from rich.table import Table
    from rich.text import Text

    federation, used = draft.federation, int(draft.federation.sizes.sum())
    facts = {
        "rows": f"{used:,}" if used == draft.rows else f"{used:,} of {draft.rows:,}",
        "clients": f"{federation.num_clients}: {some(federation.clients, NAMED, safe_name)}",
        "classes": f"{federation.num_classes}: {some(federation.classes, NAMED, safe_name)}",
    }
    head = Table.grid(padding=(0, 2))
    for name, fact in (*facts.items(), *(("note", note) for note in draft.notes)):
        head.add_row(name, Text(fact))
    console.print(head, _columns(draft.columns))
    console.print(draft.verdict.advice, markup=False)


def _columns(columns: "Sequence[Seen]") -> "Table":
    from rich.text import Text

    from fedcohort.cli.console import table_of

    table = table_of(None)
    table.add_column("column", overflow="fold", max_width=28)
    table.add_column("is read as", no_wrap=True)
    table.add_column("what is in it", overflow="fold")
    table.add_column("empty", justify="right")
    for read in (True, False):
        alike = [seen for seen in columns if seen.read == read]
        for seen in alike[:SHOWN]:
            cells = (seen.kind, seen.what) if read else ("left out", f"{seen.kind}: {seen.what}")
            empty = f"{seen.empty:,}" if seen.empty else ""
            table.add_row(*map(Text, (safe_name(seen.name), *cells, empty)), style="" if read else "dim")
        if more := Counter(seen.kind for seen in alike[SHOWN:]):
            kinds = ", ".join(f"{number} {kind}" for kind, number in more.items())
            table.add_row(f"... {more.total()} more", "" if read else "left out", kinds, "")
    return table
