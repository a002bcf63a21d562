"""The command line. Each command imports what it needs when it runs, so that ``--help`` is instant."""

import inspect
import re
import sys
from functools import cache
from typing import Annotated, NoReturn

import click
import typer
import typer.main

from fedcohort import __version__
from fedcohort.cli.advise import advise
from fedcohort.cli.bench import bench
from fedcohort.cli.clients import assign, drift
from fedcohort.cli.diagnose import diagnose
from fedcohort.cli.export import export, predict
from fedcohort.cli.flower import app as flower_app
from fedcohort.cli.init import init
from fedcohort.cli.look import report, serve, watch
from fedcohort.cli.methods import methods, new_method
from fedcohort.cli.replicate import replicate
from fedcohort.cli.run import demo, run
from fedcohort.cli.table import table
from fedcohort.cli.tune import tune
from fedcohort.util.errors import UserError
from fedcohort.util.warnings import warnings_to

TERMINAL = 79  # columns, as most have
ASKED_NOTHING = getattr(click.exceptions, "NoArgsIsHelpError", ())  # before click 8.2 that was no error

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
)


def _version(asked: bool) -> None:
    if asked:
        print(f"fedcohort {__version__}")
        raise typer.Exit


TRAINING, USING = (demo, init, run, tune, replicate), (export, predict)
LOOKING = diagnose, advise, report, table, assign, drift, watch, serve
for command in (*TRAINING, *LOOKING, *USING, bench, methods):
    app.command()(command)
new_app = typer.Typer(help="Write the file of a new method.", no_args_is_help=True)
new_app.command("method")(new_method)
app.add_typer(new_app, name="new")
app.add_typer(flower_app, name="flower")


def flowing(text: str) -> str:
    """Lines that are as long as the source allows go on in the next; shorter ones end on purpose."""
    return re.sub(rf"(?m)^(.{{{TERMINAL},}})\n(?=\S)", r"\1 ", inspect.cleandoc(text))


for group in (app, new_app, flower_app):
    for known in group.registered_commands:
        known.help = flowing(getattr(known.callback, "__doc__", None) or "")


@app.callback()
def shared(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and end.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Federated learning when clients' data differ: diagnose, compare methods, add your own."""


def main(argv: list[str] | None = None) -> None:
    """The console script: a user's mistake is one sentence and exit code 2, never a traceback."""
    try:
        with warnings_to(_warn):
            raise SystemExit(_command()(args=argv, standalone_mode=False))
    except ASKED_NOTHING as help_:
        print(help_.format_message())
        raise SystemExit(2) from None
    except UserError as mistake:
        _refuse(str(mistake))
    except click.ClickException as mistake:  # an unknown option, a missing argument
        _refuse(mistake.format_message())


@cache  # Typer makes it from all signatures, and a process may read many command lines
def _command() -> click.Command:
    return typer.main.get_command(app)


def _warn(text: str) -> None:
    print(f"warning: {_one_line(text)}", file=sys.stderr)


def _refuse(mistake: str) -> NoReturn:
    print(f"error: {_one_line(mistake)}", file=sys.stderr)
    raise SystemExit(2) from None


def _one_line(text: str) -> str:
    """What may quote somebody's file, without anything that a terminal would obey."""
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))
