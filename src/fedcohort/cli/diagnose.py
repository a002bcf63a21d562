"""The command that looks at data before anything is trained: ``diagnose``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcohort.cli.options import AsJson, Client, Label, Partition, Source
from fedcohort.util.errors import UserError

if TYPE_CHECKING:
    from fedcohort.data import Federation


def diagnose(
    source: Source,
    client: Client = None,
    label: Label = None,
    partition: Partition = None,
    seed: Annotated[int, typer.Option(help="For partitions and clustering.")] = 0,
    max_groups: Annotated[
        int, typer.Option(min=2, help="Most groups that are tried; the papers try one less than clients.")
    ] = 20,
    features: Annotated[
        bool,
        typer.Option("--features", help="Compare the clients' attributes and sizes too (reads the samples)."),
    ] = False,
    bins: Annotated[int, typer.Option(min=2, help="Quantile bins of an attribute, for --features.")] = 4,
    all_clients: Annotated[
        bool, typer.Option("--all", help="List every client, not only the most unusual.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write it to this file, with charts, as one HTML page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How skewed is this federation, who belongs with whom, and what to do about it.

    [bold]Counts[/bold], one row per client, every other column a class:
    fedcohort diagnose counts.csv --client site

    [bold]Samples[/bold], one row each: fedcohort diagnose patients.csv --client hospital --label outcome,
    or one file per client: fedcohort diagnose 'hospitals/*.csv' --client @file --label outcome

    [bold]A partition[/bold]: fedcohort diagnose experiment.toml, or
    fedcohort diagnose digits --partition "dirichlet(clients=30, alpha=0.1)"

    [bold]Attributes and sizes[/bold] too, where samples are at hand:
    fedcohort diagnose patients.csv --client hospital --label outcome --features
    """
    from fedcohort.diagnosis import diagnose as diagnose_counts
    from fedcohort.diagnosis import read_counts

    federation = dealt(source, partition, seed)
    if federation is None and features:
        federation = _table_federation(source, client, label)
    if federation is not None:
        names = federation.clients, federation.classes
        iid = None if federation.iid is None else federation.iid.numpy()
        counted = federation.counts.numpy()
        diagnosis = diagnose_counts(counted, *names, seed=seed, max_groups=max_groups, iid=iid)
    else:
        counts = read_counts(source, client, label)
        names = tuple(counts.client_names), tuple(counts.class_names)
        diagnosis = diagnose_counts(counts.matrix, *names, seed=seed, max_groups=max_groups)
    skew = None
    if features and federation is not None:
        from fedcohort.diagnosis.features import diagnose_features

        skew = diagnose_features(federation, bins)
    if html is not None:
        from fedcohort.report import write_diagnosis

        write_diagnosis(diagnosis, html, skew)
    if as_json:
        print(json.dumps({**diagnosis.to_dict(), **({"features": skew.to_dict()} if skew else {})}))
        return
    from fedcohort.cli.diagnosis_tables import show, show_features
    from fedcohort.cli.tables import results

    show(diagnosis, results, all_clients)
    if skew is not None:
        show_features(skew, results, all_clients)
    results.print(
        "Which of these methods did best on federations like this one: fedcohort advise", style="dim"
    )


def dealt(source: str, partition: str | None, seed: int) -> "Federation | None":
    """The federation of an experiment file, or of a source and a partition given as text; None: a table."""
    if partition is None and not source.endswith(".toml"):
        if not Path(source).exists() and "." not in source:
            raise UserError(
                f"there is no file {source}: if it is a data source, say how to deal it by --partition"
            )
        return None
    from fedcohort.runs.experiment import Experiment

    if partition is None:
        return Experiment.read(source).federation(seed, "federated")  # nothing leaves this machine
    if Path(source).is_file():
        raise UserError(f"--partition deals a data source, but {source} is a file: leave --partition out")
    from fedcohort.data import federate, load
    from fedcohort.data.partition import partitioner
    from fedcohort.util.expression import parse

    (data, options), *more_data = parse(source)
    (protocol, parameters), *more_protocols = parse(partition)
    if more_data or more_protocols:
        raise UserError("give one data source and one --partition: they cannot be added")
    return federate(load(data, **options), partitioner(protocol, **parameters), seed=seed)


def _table_federation(path: str, client: str | None, label: str | None) -> "Federation":
    """A table of samples with all its columns, dealt to the clients it names."""
    if client is None or label is None:
        raise UserError(
            "--features needs samples, not counts: name their columns with --client and --label, "
            "or give an experiment file"
        )
    from fedcohort.data import SplitPlan, federate, load
    from fedcohort.data.partition import partitioner

    data = load("table", path=path, client=client, label=label, missing="mean")
    return federate(data, partitioner("natural"), SplitPlan(test=0))
