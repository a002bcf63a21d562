"""``--help`` tells what every argument and option of every command is."""

import click
import pytest
import typer

from fedcohort.cli.app import app, flowing
from support.cli_calls import Cli


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    found = {}
    for name, command in group.commands.items():
        here = (*path, name)
        found |= commands(command, here) if isinstance(command, click.Group) else {here: command}
    return found


ROOT = typer.main.get_command(app)
assert isinstance(ROOT, click.Group)
COMMANDS = commands(ROOT)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_says_what_each_word_of_a_command_is(path: tuple[str, ...], cli: Cli) -> None:
    """Positional arguments too, whose help click 8.5 takes away from Typer."""
    told = " ".join(cli(*path, "--help").out.replace("│", " ").split())
    assert len(COMMANDS[path].help or "") > 20
    for param in COMMANDS[path].params:
        about = getattr(param, "help", None) or ""
        assert about, f"{' '.join(path)} {param.name}: it has no help"
        first = about.split()[:3]
        assert " ".join(first) in told, f"{' '.join(path)} {param.name}: its help is not shown"


def test_prose_of_the_source_flows_on_and_short_lines_end() -> None:
    long = "x" * 90
    assert flowing(f"One.\n\n    {long}\n    {long}\n    end.\n\n    a: b\n    c: d\n") == (
        f"One.\n\n{long} {long} end.\n\na: b\nc: d"
    )
    for command in app.registered_commands:
        assert flowing(command.callback.__doc__) == command.help
