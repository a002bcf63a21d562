"""The commands about methods themselves: ``methods``, and ``new method``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcohort.cli.options import AsJson


def methods(
    name: Annotated[
        str | None, typer.Argument(help="One method in full, or a combination; or a preset, or a paper.")
    ] = None,
    presets: Annotated[
        bool, typer.Option("--presets", help="Methods as papers compare them, with the papers' values.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the methods: what each is for, its parameters, what it needs to know and what it sends.

    [bold]As papers compare them[/bold]: fedcohort methods --presets, of one paper:
    fedcohort methods --presets fedlecc

    [bold]In an experiment file[/bold]: method = ["fedlecc/haccs", "clust-psi-pfl/fedyogi"]
    """
    if presets or (name and "/" in name):
        _list_presets(name, as_json)
        return
    from fedcohort.runs.method_catalogue import catalogue, describe

    if as_json:
        print(json.dumps(describe(name) if name else catalogue()))
        return
    from fedcohort.cli.tables import combination_page, method_page, method_table, results

    if name:
        entry = describe(name)
        results.print(combination_page(entry) if "parts" in entry else method_page(entry))
    else:
        results.print(method_table(catalogue()))
        results.print(
            "Combine one of each role, and transforms: fedlecc+fedprox(mu=0.01)+fedavgm+clip(1.0)",
            markup=False,
        )
        results.print("One in full: fedcohort methods scaffold, or fedlecc+fedprox", markup=False)
        results.print("With the values of papers' comparisons: fedcohort methods --presets", markup=False)


def _list_presets(of: str | None, as_json: bool) -> None:
    from fedcohort.presets import listing

    listed = listing(of)
    if as_json:
        print(json.dumps(listed))
        return
    from fedcohort.cli.preset_tables import preset_tables
    from fedcohort.cli.tables import results

    results.print(preset_tables(listed))


def new_method(
    name: Annotated[str, typer.Argument(help="Its name, which is also the name of its file.")],
    role: Annotated[
        str, typer.Option(help="selector, objective, averaging, server_optimiser, grouping or transform.")
    ] = "objective",
    directory: Annotated[Path, typer.Option("--dir", help="Where to write the file.")] = Path(),
) -> None:
    """Write a method's file and the start of its equation test, ready to run and to change."""
    from fedcohort.cli.new_method import write_method

    for path in write_method(name, role, directory):
        print(path)
    print(f'Try it: put imports = ["{name}"] and [[method]] name = "{name}" into an experiment file.')
