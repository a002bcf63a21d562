"""Words of others on the terminal."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from fedcohort.cli.console import PlainConsole
from support.cli_calls import Cli

ORDER = "a\x1b]0;b\x07\u202ec\x9b31m"


def test_nothing_but_rich_gives_orders() -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=60, highlight=False)
    table = Table(ORDER)
    table.add_row(Text(ORDER, style="bold"))
    console.print(ORDER, table, "a\xa0b", markup=False, sep="\n")
    said = out.getvalue()
    assert "a?]0;b?c?31m" in said  # rich itself drops the bell
    assert "a b" in said
    assert "\x1b[1m" in said  # bold
    assert not {*"\x07\u202e\x9b"} & {*said}
    assert "\x1b]" not in said


def test_classes_and_columns_of_a_table(cli: Cli) -> None:
    """Of somebody's table, whose client names were made safe already."""
    lines = [f"s{k % 3},{k},{f'c{ORDER}' if k % 2 else 'd'}" for k in range(60)]
    with open("t.csv", "w") as file:  # noqa: PTH123
        file.write("\n".join([f"site,x{ORDER},y", *lines]))
    answer = cli("diagnose", "t.csv", "--client", "site", "--label", "y", "--features", "--all")
    assert answer.code == 0
    assert "?]0" in answer.out
    assert not {*"\x1b\x07\u202e\x9b"} & {*answer.out}


@pytest.mark.parametrize("command", ["run", "tune"])
def test_a_label_is_no_markup(command: str, cli: Cli) -> None:
    words = ("--set", 'method=[{name="fedavg", label="[/x] a"}]', "--quiet")
    answer = cli(command, "e.toml", *words, *(("--budget", "1") if command == "tune" else ()))
    assert answer.code == 0
    assert "[/x] a" in answer.out
