"""The commands for clients that come or change after training: ``assign`` and ``drift``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcohort.cli.options import AsJson, Client, Label
from fedcohort.util.errors import UserError

Everything = Annotated[bool, typer.Option("--all", help="Show every row, not only the first.")]


def assign(
    run: Annotated[Path, typer.Argument(help="The directory of a finished run.")],
    counts: Annotated[
        Path | None, typer.Option(help="Label counts of the newcomers (CSV, Parquet), or their samples.")
    ] = None,
    losses: Annotated[
        Path | None,
        typer.Option(help="Mean loss of each group's model on each newcomer's data: columns 0, 1, ..."),
    ] = None,
    client: Client = None,
    label: Label = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Which group of a finished run should a client that arrives after training join?

    [bold]By labels[/bold]: one row per newcomer, every other column a class. The rule of the run's method
    decides where it has one (clust_psi_pfl: the nearest centre of its PSI features), else the Hellinger
    distance to each group's labels:
    fedcohort assign runs/demo-001/clust_psi_pfl-1a2b3c4d-s0 --counts newcomers.csv --client site

    [bold]By samples[/bold], one row each, of one newcomer or several:
    fedcohort assign RUN --counts patients.csv --label outcome

    [bold]By losses[/bold], where labels may not be counted: try each group's model on the newcomer's data,
    and the lowest mean loss decides, as in IFCA: fedcohort assign RUN --losses losses.csv

    A newcomer whose labels are farther from every group than those of all its members is named: no model of
    the run has learnt from a client like it.
    """
    if (counts is None) == (losses is None):
        raise UserError("give either --counts or --losses: what is known of the newcomers")
    from fedcohort.diagnosis.assign import join_by_counts, join_by_losses
    from fedcohort.diagnosis.read import read_counts, read_numbers
    from fedcohort.runs.stored import FinishedRun

    finished = FinishedRun.read(run)
    if counts is not None:
        joining = join_by_counts(finished, read_counts(counts, client, label, single=True))
    elif losses is not None:
        joining = join_by_losses(finished, *read_numbers(losses, client))
    if as_json:
        print(json.dumps(joining.to_dict()))
        return
    from fedcohort.cli.client_tables import joining_page
    from fedcohort.cli.tables import results

    results.print(joining_page(joining, everything))


def drift(
    old: Annotated[Path, typer.Argument(help="Label counts of the clients as they were (CSV, Parquet).")],
    new: Annotated[Path, typer.Argument(help="Label counts of the same clients, by name, as they are now.")],
    run: Annotated[
        Path | None, typer.Option(help="A finished run: who should change from one of its groups to another?")
    ] = None,
    client: Client = None,
    label: Label = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Do clients' labels still look as they did, and do clients still belong to their groups?

    fedcohort drift january.csv june.csv --client site --run runs/e-001/clust_psi_pfl-1a2b3c4d-s0

    PSI of each client's new labels against its old ones, read as in credit scoring: below 0.1 stable, below
    0.25 a moderate shift, else a major one. A shift that samples of this size show by luck one time in twenty
    is called chance. With --label the tables hold samples, one row each, and are counted first.
    """
    from fedcohort.diagnosis.drift import measure_drift
    from fedcohort.diagnosis.read import read_counts
    from fedcohort.runs.stored import FinishedRun

    before, after = (read_counts(path, client, label, single=True) for path in (old, new))
    result = measure_drift(before, after, None if run is None else FinishedRun.read(run))
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    from fedcohort.cli.client_tables import drift_page
    from fedcohort.cli.tables import results

    results.print(drift_page(result, everything))
