"""``fedcohort table``, and how commands show runs under several conditions."""

import json
from pathlib import Path

import pytest

from fedcohort.cli.table_formats import FORMATS
from fedcohort.cli.tables import results, show_ranking
from fedcohort.runs.outcomes.standings import Outcome, rankings
from support.cli_calls import Cli
from support.result_dirs import a_result


@pytest.fixture
def home(here: Path) -> Path:
    for alpha in (0.1, 0.5):
        a_result(here / "runs" / "e-001", "fedavg", 0, [0.5, 0.6], partition__alpha=alpha)
    return here


def test_a_table_is_printed_in_every_format(cli: Cli, home: Path) -> None:
    answer = cli("table", "runs/e-001")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split() for line in answer.out.splitlines() if line.strip()][1:4] == [
        ["partition.alpha", "0.1", "0.5"],
        ["method"],
        ["─" * len(answer.out.splitlines()[4].strip())],
    ]
    assert (
        "| fedavg | 55.0 | 55.0 |"
        in cli("table", "runs/e-001", "--format", "markdown", "--over", "last:2").out
    )
    assert cli("table", "runs/e-001", "--format", "latex").out.startswith("% needs")
    rows = cli(
        "table", "runs/e-001", "--format", "csv", "--rows", "partition.alpha,method", "--cols", "rounds"
    ).out
    assert rows.splitlines()[1].startswith("0.1,fedavg,4,global.accuracy,last,0.6,")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["runs/e-001", "--cols", "local.lr"],
            "error: a cell would mix runs that differ: partition.alpha (0.1, 0.5)",
        ),
        (["runs"], "is not the directory of a run"),
        (["runs/e-001", "--format", "word"], "'word' is not one of"),
        (["runs/e-001", "--metric", "x"], "no run here has a number x; known: global.accuracy"),
    ],
)
def test_a_mistake_is_one_sentence(cli: Cli, home: Path, words: list[str], said: str) -> None:
    answer = cli("table", *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1


def test_looking_executes_nothing_and_writes_nothing(cli: Cli, home: Path) -> None:
    """A method and a model that are code of somebody else."""
    run = a_result(
        home / "runs" / "other", "theirs(3)", 0, [0.5], imports=["evil"], model={"name": "evil:net"}
    )
    (home / "evil.py").write_text("raise SystemExit('executed')")
    before = sorted(home.rglob("*"))
    assert "theirs(3)" in cli("table", str(run)).out
    assert sorted(home.rglob("*")) == before


def test_every_condition_has_its_own_leaderboard() -> None:
    outcomes = [
        Outcome("fedavg", 0, Path(), {"global.accuracy": a}, settings={"partition.alpha": a, "rounds": 7})
        for a in (0.2, 0.4)
    ]
    with results.capture() as shown:
        for standings in rankings(outcomes):
            show_ranking(standings, 99, [])
    lines = [line.strip() for line in shown.get().splitlines()]
    headings = [line for line in lines if line.startswith("partition.")]
    assert headings == ["partition.alpha = 0.2, rounds = 7", "partition.alpha = 0.4, rounds = 7"]
    assert sum("After 7 rounds" in line for line in lines) == 2


def test_runs_under_conditions_are_told_apart_while_they_go_on(cli: Cli, home: Path) -> None:
    told = json.loads(cli("watch", "runs/e-001", "--json").out)["runs"]
    assert [run["settings"] for run in told] == [{"partition.alpha": 0.1}, {"partition.alpha": 0.5}]
    assert "partition.alpha" in cli("watch", "runs/e-001", "--once").out


def test_what_a_directory_names_is_harmless_in_every_format(cli: Cli, here: Path) -> None:
    """Settings and labels of somebody's runs: no order to a terminal, no formula, no command, tag or link."""
    cli("run", "e.toml", "--quiet", "--sweep", "local.lr=0.1,0.2")
    for number, path in enumerate(sorted((here / "runs/e-001").glob("*/config.toml"))):
        key, value = r'"x\u001b]0;a\u0007"', rf'"=A{number} \\input{{b}} <img> ![c](d) | `e`"'
        path.write_text(path.read_text().replace("[data]\n", f"[data]\n{key} = {value}\n"))
    told = {name: cli("table", "runs/e-001", "--format", name).out for name in FORMATS}
    for text in told.values():
        assert "x1b]0;a" in text.replace("\\]", "]")
        assert not {"\x1b", "\x07"} & {*text}
    assert ",'=A0 " in told["csv"]
    assert r"\input" not in told["latex"]
    assert r"\\input{b} \<img> !\[c\](d) \| \`e\`" in told["markdown"]
