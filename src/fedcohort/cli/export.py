"""The commands of a model in use: ``export`` and ``predict``."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcohort.util.errors import UserError
from fedcohort.util.words import counted

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from fedcohort.runs.stored import FinishedRun

NAME = 1000  # characters of a class that predictions repeat


def export(
    run: Annotated[
        Path, typer.Argument(help="A finished run, a comparison, or the --home of a 'flower client'.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model's folder: new, or empty.")],
    client: Annotated[str | None, typer.Option(help="The model that serves this client.")] = None,
    group: Annotated[int | None, typer.Option(min=0, help="The model of this group.")] = None,
    newcomer: Annotated[
        Path | None,
        typer.Option(help="The model of the group that a newcomer with these label counts belongs to."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="With --newcomer: its table has a row per sample; the label column.")
    ] = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Rows of who will use the model, where the run does not say how to read or scale them."
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Execute the modules that the directory's files name.")
    ] = False,
) -> None:
    """Write the model of a finished run into a folder, to be used without the run and its data.

    fedcohort export runs/hearts-001 --out model

    Of a comparison it is the best method's, with its best seed. Where several models serve the clients, say
    whose: [bold]--client hospital-a[/bold], [bold]--group 2[/bold], or [bold]--newcomer counts.csv[/bold]
    for the group nearest by labels, as 'fedcohort assign' finds it.

    Where each client scaled its numbers by its own rows, [bold]--rows[/bold] are rows of who will use the
    model; likewise after a deployment, whose server knows no columns.
    """
    if sum(each is not None for each in (client, group, newcomer)) > 1:
        raise UserError("a model is for one: give one of --client, --group and --newcomer")
    from fedcohort.flower.client_store import last_served
    from fedcohort.runs.export.card import card, wrong_with
    from fedcohort.runs.export.choice import best_run
    from fedcohort.runs.export.folder import write_model
    from fedcohort.runs.export.served import Whose, served_model
    from fedcohort.util.names import safe_name

    if (served := last_served(run)) is not None:
        if any(each is not None for each in (client, group, newcomer, rows)):
            raise UserError("a client has the one model that serves it: leave the options out")
        _write_kept(served, out, trust)
        return
    finished, chosen = best_run(run)
    if newcomer is not None:
        group = _nearest_group(finished, newcomer, label)
    found = served_model(finished, Whose(client, group), rows, trust)
    write_model(found.model, card(found, finished, chosen), out)
    for finding in wrong_with(finished):
        warnings.warn(safe_name(str(finding), NAME), stacklevel=1)
    if chosen:
        print(f"Chosen: {safe_name(chosen, NAME)}")
    print(f"{out}: the model for {safe_name(found.model.serves)}")


def _write_kept(served: Path, out: Path, trust: bool) -> None:
    """What a client of a deployment keeps is a model folder without card."""
    from fedcohort.runs.export.card import plain_card
    from fedcohort.runs.export.folder import write_model
    from fedcohort.serving.model import FACTS, load_model
    from fedcohort.util.files import fields, read_json
    from fedcohort.util.names import safe_name

    facts = fields(read_json(served / FACTS), {"architecture": dict}, served / FACTS)
    model = load_model(served, allow=[str(facts["architecture"].get("name"))] if trust else ())
    write_model(model, plain_card(model, f"the run {served.parent.parent.name} of a deployment"), out)
    print(f"{out}: the model that served {safe_name(model.serves)} last")


def _nearest_group(run: "FinishedRun", counts: Path, label: str | None) -> int:
    from fedcohort.diagnosis.assign import join_by_counts
    from fedcohort.diagnosis.read import read_counts

    told = read_counts(counts, None, label, single=True)
    if len(told.client_names) != 1:
        raise UserError(f"{counts} tells of {len(told.client_names)} newcomers: give the counts of one")
    if run.models == 1 and run.revealed().counts is None:  # one model needs nobody's labels
        return 0
    joining = join_by_counts(run, told)
    if joining.far[0]:
        warnings.warn(
            f"the labels of {counts} are farther from every group's than those of all its members: the model "
            "may serve this newcomer badly",
            stacklevel=1,
        )
    return joining.group[0]


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that 'fedcohort export' wrote.")],
    rows: Annotated[Path, typer.Argument(help="New rows: CSV, Parquet; npz for models of arrays, images.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The answers, a row for each row (CSV).")],
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="No prediction where its probability is below this.")
    ] = 0.0,
    identifier: Annotated[
        str | None, typer.Option("--id", help="A column of the new rows to repeat beside the answers.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="A module:function that makes the folder's network, if it is not fedcohort's own."),
    ] = None,
) -> None:
    """Answer new rows with an exported model: prediction, and the probability p_CLASS of each class.

    fedcohort predict model new.csv --out predictions.csv --threshold 0.7 --id patient

    Columns may stand in any order, and others are ignored. A category that training never saw is counted and
    told. The folder is enough: no training data, no run.
    """
    import polars as pl

    from fedcohort.serving.model import load_model
    from fedcohort.serving.rows import read_rows
    from fedcohort.util.checkpoint import write_atomically
    from fedcohort.util.names import safe_name, safe_names

    if os.path.lexists(out):
        raise UserError(f"{out} is there already: choose another --out, or move it away")
    served = load_model(model, allow=allow or ())
    data = read_rows(rows, served.preparation)
    chances = served.predict_proba(data)
    names = dict(zip(served.classes, safe_names(served.classes, NAME), strict=True))  # for spreadsheets
    answers = [names.get(answer) for answer in served.named(chances, threshold)]
    columns = {f"p_{name}": chances[:, place] for place, name in enumerate(names.values())}
    table = pl.DataFrame({"prediction": pl.Series(answers, dtype=pl.String), **columns})
    if identifier is not None:
        table = table.insert_column(0, _identifier(data, identifier, table.columns))
    try:
        write_atomically(out, table.write_csv().encode())
    except OSError as error:
        raise UserError(f"cannot write {out} ({error.strerror}): choose another --out") from None
    unsure = sum(answer is None for answer in answers)
    told = f", {unsure} without a prediction, as none reaches {threshold:g}" if threshold else ""
    print(f"{out}: {counted(len(answers), 'row')} answered by the model for {safe_name(served.serves)}{told}")


def _identifier(data: "pl.DataFrame | np.ndarray", name: str, taken: list[str]) -> "pl.Series":
    from fedcohort.util.settings import nearest

    known = getattr(data, "columns", [])
    if name not in known:
        raise UserError(f"the new rows have no column '{name}' (--id){nearest(name, known)}")
    if name in taken:
        raise UserError(f"'{name}' is also a column of the answers: rename it")
    return data[name]  # type: ignore[return-value]
