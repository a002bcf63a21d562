"""Commands that look at runs, finished or going on: ``report``, ``watch`` and ``serve``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedcohort.cli.options import AsJson


def report(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs, or of whole comparisons.")],
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("report.html"),
) -> None:
    """Who is badly served and why, method against method, client by client: one HTML file that opens offline.

    [bold]Example[/bold]: fedcohort report runs/demo-001 --out demo.html

    [bold]Comparisons side by side[/bold]: fedcohort report runs/e-001 runs/e-002

    Unfinished runs are shown as far as they have got.
    """
    from fedcohort.report import write_report

    print(write_report(runs, out))


def watch(
    run: Annotated[Path, typer.Argument(help="The directory of a run, or of a whole comparison.")],
    once: Annotated[bool, typer.Option("--once", help="Show how far it is now, and return.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a run or a comparison is, and follow it until it ends.

    [bold]From another terminal[/bold]: fedcohort watch runs/demo-001

    Ctrl-C stops watching; the runs go on. --json prints how far they are now.
    """
    if as_json:
        from fedcohort.runs.status import Followers

        print(json.dumps({"runs": [status.to_dict() for status in Followers(run).look()]}))
        return
    from fedcohort.cli.tables import results
    from fedcohort.cli.watch import watch as follow

    try:
        follow(run, results, once)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def serve(
    directory: Annotated[Path, typer.Argument(help="A directory of runs.")] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
) -> None:
    """Serve the reports of a directory of runs to browsers on this machine, and to nobody else.

    Reports are made when they are asked for, again when a run has new rounds, and open pages follow.
    """
    from fedcohort.cli.http import PageServer

    with PageServer(directory, port) as server:
        print(f"Reports of {directory}: {server.url} (Ctrl-C to stop)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None
