"""``replicate``: lists papers' tables, and shows one with the paper's numbers and ours."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from fedcohort.runs.replication.replication import Replication
from fedcohort.util.errors import UserError
from support.cli_calls import TINY, Cli

EXPECTED = """\
table,row,column,conditions,method,metric,value,std,unit
I,FedProx,all,partition.alpha=0.5,fedprox,global.accuracy,0.40,0.01,
I,FedAvg,all,partition.alpha=0.5,fedavg,global.accuracy,0.99,,
I,Other,all,,,,0.5,,
"""
TABLE = """
about = "a tiny table"

[scales.small]
about = "one round"
set = ["rounds=1"]

[[claims]]
about = "FedAvg beats FedProx"
method = "fedavg"
against = "fedprox"
conditions = "partition.alpha=0.5"
metric = "global.accuracy"
"""


@pytest.fixture
def home(here: Path) -> Path:
    folder = here / "papers" / "tiny" / "table1"
    folder.mkdir(parents=True)
    top = 'method = ["fedavg", "fedprox"]\nseeds = [0, 1, 2]\n'
    (folder / "experiment.toml").write_text(f"{top}{TINY}\n[sweep]\npartition.alpha = [0.5]\n")
    (folder / "table.toml").write_text(TABLE)
    (folder / "expected.csv").write_text(EXPECTED)
    return folder


def test_the_list_tells_how_far_each_table_is(cli: Cli, home: Path) -> None:
    before = json.loads(cli("replicate", "--json").out)
    assert [(entry["paper"], entry["table"], entry["scale"]) for entry in before] == [
        ("tiny", "table1", "paper"),
        ("tiny", "table1", "small"),
    ]
    told = {key: value for key, value in before[0].items() if key not in ("paper", "table", "scale", "about")}
    assert told == {
        "cells": 2, "done": 0, "seeds": 3, "runs": 6, "runs_done": 0, "runs_left": 6, "verdict": "1 open",
        "data": ["synthetic"], "seconds_left": None,
    }  # fmt: skip
    assert "not probed" in cli("replicate").out
    cli("replicate", "tiny/table1", "--probe", "--quiet")
    assert json.loads(cli("replicate", "--json").out)[0]["seconds_left"] > 0
    cli("replicate", "tiny/table1", "--quiet", "--seeds", "2")
    assert re.search(r"table1 +paper +0 of 2 +4 of 6 ", cli("replicate").out)
    cli("replicate", "tiny/table1", "--quiet")
    after = json.loads(cli("replicate", "--json").out)[0]
    assert (after["done"], after["runs_done"], after["runs_left"], after["seconds_left"]) == (2, 6, 0, 0)
    assert after["verdict"] in [
        f"1 {word}" for word in ("confirmed", "weaker", "not reproduced", "reversed", "undecided")
    ]


def test_a_table_shows_both_numbers_and_what_they_say(cli: Cli, home: Path) -> None:
    (home / "expected.csv").write_text(f"{EXPECTED}I,Neither,all,,,,,,\n")
    answer = cli("replicate", "tiny/table1", "--quiet")
    assert answer.code == 0
    assert "paper: a replication: the paper's protocol" in answer.out
    assert "0.400 ± 0.010" in answer.out
    assert re.search(r"^ *all *$", answer.out, re.MULTILINE)  # the column, above its rows
    assert re.search(r"^ *Other +0.500 +–", answer.out, re.MULTILINE)
    assert "Neither" not in answer.out
    assert "FedAvg beats FedProx" in answer.out
    told = json.loads(cli("replicate", "tiny/table1", "--scale", "small", "--json", "--quiet").out)
    assert told["called"] == "a scaled test, not a replication (one round)"
    row, claim = told["rows"][0], told["claims"][0]
    assert row["ours"]["seeds"] == 3
    assert row["difference"] == pytest.approx(row["ours"]["mean"] - 0.40)
    assert row["interval"][0] <= row["difference"] <= row["interval"][1]
    assert claim["paper"] == pytest.approx(0.59)
    assert len(claim["differences"]) == 3
    assert told["rows"][2]["ours"] == {"mean": None, "std": None, "seeds": 0, "runs": 0}


def test_of_several_tables_all_claims_go_first(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second table has a method that no claim needs, the third has not the scale."""
    for number in (2, 3):
        shutil.copytree(home, home.parent / f"table{number}")
    about = home.parent / "table3" / "table.toml"
    about.write_text(about.read_text().replace("[scales.small]", "[scales.smoke]"))
    path = home.parent / "table2" / "experiment.toml"
    path.write_text(path.read_text().replace('"fedprox"]', '"fedprox", "fedavgm"]'))
    more = "I,FedAvgM,all,partition.alpha=0.5,fedavgm,global.accuracy,0.9,,\n"
    (path.parent / "expected.csv").write_text(EXPECTED + more)
    begun: list[tuple[str, int]] = []
    made = Replication.run

    def run(asked: Replication, *about: Any) -> None:
        begun.append((asked.folder.path.name, len(asked.open)))
        made(asked, *about)

    monkeypatch.setattr(Replication, "run", run)
    answer = cli("replicate", "tiny/*", "--scale", "small", "--json", "--quiet")
    assert begun == [("table1", 6), ("table2", 6), ("table1", 0), ("table2", 3)]
    told = json.loads(answer.out)
    assert [(each["table"], each["runs_left"]) for each in told] == [("table1", 0), ("table2", 0)]
    assert told[1]["rows"][3]["ours"]["seeds"] == 3


def test_ctrl_c_ends_all_tables(cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other(home)
    begun: list[str] = []

    def run(asked: Replication, *about: Any) -> None:
        begun.append(asked.folder.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(Replication, "run", run)
    answer = cli("replicate", "tiny/*", "--quiet")
    assert (begun, answer.code) == (["tiny/table1"], 130)
    assert "Stopped; nothing is lost" in answer.err


def test_the_name_of_a_paper_is_all_of_its_tables(cli: Cli, home: Path) -> None:
    other(home)
    told = json.loads(cli("replicate", "tiny", "--show", "--json").out)
    assert [each["table"] for each in told] == ["table1", "table2"]


def test_a_smoke_test_judges_nothing(cli: Cli, home: Path) -> None:
    path = home / "table.toml"
    path.write_text(path.read_text() + '\n[scales.smoke]\nset = ["rounds=1"]\n')
    out = cli("replicate", "tiny/table1", "--scale", "smoke", "--quiet").out
    assert "All of it runs" in out
    assert "FedAvg beats" not in out


def test_what_ends_a_table_ends_no_other(cli: Cli, home: Path) -> None:
    """A file that cannot be read, and a run that cannot be made; a pattern is answered with a list."""
    one = json.loads(cli("replicate", "tiny/*", "--scale", "small", "--json", "--quiet").out)
    assert [each["table"] for each in one] == ["table1"]
    for number in (2, 3):
        shutil.copytree(home, home.parent / f"table{number}")
        (home.parent / f"table{number}" / "results.csv").unlink()
    (home / "expected.csv").write_text("no,such,columns\n1,2,3\n")
    path = home.parent / "table2" / "experiment.toml"
    path.write_text(path.read_text().replace("[0.5]", "[1e-9]"))
    path = home.parent / "table2" / "expected.csv"
    path.write_text(path.read_text().replace("0.5,fed", "1e-09,fed"))
    path = home.parent / "table2" / "table.toml"
    path.write_text(path.read_text().replace("alpha=0.5", "alpha=1e-09"))
    (other(home, "table4") / "table.toml").write_text("about = ")
    answer = cli("replicate", "tiny/*", "--json", "--quiet")
    assert answer.code == 2
    assert answer.err.count("error: ") == 1
    for number in (1, 2, 4):  # each with its reason
        assert f"tiny/table{number}: " in answer.err
    assert "Traceback" not in answer.err
    assert {each["table"]: each["runs_left"] for each in json.loads(answer.out)} == {"table2": 6, "table3": 0}


def test_several_tables_share_a_budget_and_what_failed_stays_failed(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first table takes the time of both; then there is none to try again what failed in it."""
    other(home)
    given: list[float] = []

    def run(asked: Replication, watcher: Any, seconds: float) -> None:
        given.append(seconds)
        now[0] += 50.0
        if len(given) == 1:
            raise UserError("no such thing")

    now = [0.0]
    monkeypatch.setattr(Replication, "run", run)
    monkeypatch.setattr("fedcohort.cli.replicate.time.monotonic", lambda: now[0])
    answer = cli("replicate", "tiny/*", "--budget", "60s", "--quiet")
    assert given == [60.0, 10.0, -40.0, -90.0]
    assert answer.code == 2
    assert "error: tiny/table1: no such thing" in answer.err


def test_show_runs_nothing_and_says_what_is_left(cli: Cli, home: Path) -> None:
    answer = cli("replicate", "tiny/table1", "--show")
    assert answer.code == 0
    assert not (home / "results.csv").exists()
    assert "6 runs left: without --show they are made." in answer.err
    assert re.search(r"FedProx +0.400 ± 0.010 +not run", answer.out)
    assert "nothing is made" not in answer.out
    cli("replicate", "tiny/table1", "--scale", "small", "--cells", "fedavg", "--quiet")
    shown = cli("replicate", "tiny/table1", "--show").out
    assert "Of this scale nothing is made; --scale small has 3 runs." in shown
    cli("replicate", "tiny/table1", "--probe", "--quiet")
    probed = cli("replicate", "tiny/table1", "--show").err
    assert re.search(r"\d runs left, about .+: without --show they are made\.", probed)


def test_what_a_study_makes_is_listed_and_shown(cli: Cli, home: Path) -> None:
    """Nothing is trained for it: it has no experiment file, no cost, and only the scales it names."""
    (home / "experiment.toml").unlink()
    study = {"name": "counted", "file": "rows.csv", "conditions": "all", "method": "$who", "data": "labels"}
    (home / "table.toml").write_text(tomli_w.dumps({"about": "counted", "study": study}))
    head = EXPECTED.splitlines()[0]
    (home / "expected.csv").write_text(f"{head}\nI,One,all,all,one,groups,,,\n")
    studies = home.parents[2] / "studies"
    studies.mkdir()
    (studies / "rows.csv").write_text("who,seed,groups\none,0,3\none,1,4\n")
    listed = json.loads(cli("replicate", "--json").out)
    assert [(each["table"], each["runs_left"], each["seconds_left"]) for each in listed] == [("table1", 0, 0)]
    refused = cli("replicate", "tiny/table1", "--scale", "small")
    assert refused.err == "error: tiny/table1 has no scale 'small': it has paper\n"
    assert not (home / "results.csv").exists()
    made = cli("replicate", "tiny/table1", "--json", "--quiet")
    told = json.loads(made.out, parse_constant=pytest.fail)  # NaN is no JSON
    assert told["rows"][0]["ours"] == {
        "mean": 3.5, "std": pytest.approx(0.7071, abs=1e-4), "seeds": 2, "runs": 2
    }  # fmt: skip
    assert (told["rows"][0]["value"], told["rows"][0]["interval"]) == (None, None)
    assert cli("replicate", "tiny/table1", "--probe", "--quiet").code == 0
    (studies / "rows.csv").unlink()  # as where papers/ alone was copied
    alone = cli("replicate", "tiny/table1", "--show", "--json")
    assert json.loads(alone.out, parse_constant=pytest.fail)["rows"] == told["rows"]
    (home / "results.csv").unlink()
    gone = cli("replicate", "tiny/table1")
    assert gone.code == 2
    assert "counted.py: tiny/table1 is made by it, copy 'studies' beside 'papers'" in " ".join(
        gone.err.split()
    )


def test_a_probe_that_cannot_be_made_says_why(cli: Cli, home: Path) -> None:
    path = home / "experiment.toml"
    path.write_text(path.read_text().replace("[0.5]", "[1e-9]"))
    for name in ("expected.csv", "table.toml"):
        path = home / name
        path.write_text(path.read_text().replace("alpha=0.5", "alpha=1e-09"))
    answer = cli("replicate", "tiny/table1", "--probe", "--quiet")
    assert answer.code == 2
    assert "no Dirichlet draw with alpha=1e-09" in answer.err
    listed = cli("replicate", "--probe", "--quiet")
    assert "table1" in listed.out
    assert "warning: not probed: no Dirichlet draw" in listed.err


def test_lines_of_other_settings_are_left_out_with_a_word(cli: Cli, home: Path) -> None:
    cli("replicate", "tiny/table1", "--quiet", "--cells", "fedavg")
    path = home / "experiment.toml"
    path.write_text(path.read_text().replace("cohort = 3", "cohort = 2"))
    answer = cli("replicate", "tiny/table1", "--quiet", "--budget", "1s", "--cells", "fedprox")
    assert "3 lines of results.csv left out, of other settings" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tiny/tabel1"], "unknown table 'tiny/tabel1', did you mean 'tiny/table1'?"),
        (["tony/*"], "unknown table 'tony/*'"),
        (["t*", "--cells", "fedavg"], "--cells are those of one table: name one, or leave --cells out"),
        (["t*", "--scale", "smoke"], "no such table has this scale: 'fedcohort replicate' lists them"),
        ([""], "unknown table ''"),
        (["--cells", "x"], "--cells, --seeds and --budget go with a table: name one, or 'paper/*'"),
        (["--data", "nowhere"], "--data nowhere: there is no such folder"),
        (["tiny/table1", "--scale", "smoke"], "tiny/table1 has no scale 'smoke': it has paper, small"),
        (["tiny/table1", "--budget", "soon"], "--budget soon: write a time like 90s, 30m or 2h"),
        (
            ["tiny/table1", "--cells", "x"],
            "no such cell; methods: fedprox, fedavg; conditions: partition.alpha=0.5",
        ),
        (
            ["tiny/table1", "--papers", "nowhere"],
            "give the folder 'papers' of fedcohort's repository with --papers",
        ),
    ],
)
def test_mistakes_are_one_sentence(cli: Cli, home: Path, words: list[str], told: str) -> None:
    shutil.copytree(home, home.parent / "table2")
    answer = cli("replicate", *words)
    assert answer.code == 2
    assert told in answer.err


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("expected.csv", "0.40", "much", "'much' is no number"),
        ("expected.csv", "0.40", "1e99", "beyond all measure"),
        ("expected.csv", "0.01,", "0.01,kg", "unit 'kg' is none of %, MB"),
        ("expected.csv", "value,std", "value,sd", "its columns are not table,row"),
        ("expected.csv", ",0.40,0.01,", ",0.40", "line 2 has not as many fields"),
        ("table.toml", "[scales.small]", "[scales.tiny]", "scales.tiny: unknown"),
        ("table.toml", 'against =', 'agianst =', "table.toml: claims.0.agianst: unknown"),
        ("table.toml", "about = \"a tiny", "abuot = \"a tiny", "abuot: unknown, did you mean 'about'?"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_named(cli: Cli, home: Path, file: str, old: str, new: str, told: str) -> None:
    text = (home / file).read_text()
    assert old in text
    (home / file).write_text(text.replace(old, new))
    answer = cli("replicate", "tiny/table1", "--quiet")
    assert answer.code == 2
    assert told in answer.err
    assert "Traceback" not in answer.err


def test_results_that_are_damaged_are_named(cli: Cli, home: Path) -> None:
    (home / "results.csv").write_text("conditions,method,scale,seed,config\na,b,paper,one,c\n")
    answer = cli("replicate", "tiny/table1", "--quiet")
    assert answer.code == 2
    assert "results.csv is damaged" in answer.err


def other(home: Path, name: str = "table2") -> Path:
    """A second folder, like the first."""
    return shutil.copytree(home, home.parent / name)


def test_one_odd_folder_hides_no_other(cli: Cli, home: Path) -> None:
    (other(home) / "expected.csv").write_text("nonsense")
    answer = cli("replicate")
    assert answer.code == 0
    assert "table1" in answer.out
    assert answer.err.startswith("warning: left out: ")
    assert "table2/expected.csv names no number" in answer.err
    (home / "table.toml").unlink()
    assert cli("replicate").code == 2


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("experiment.toml", 'imports = ["evil"]\n'),
        ("experiment.toml", "model = {name = 'subprocess:run', args = ['touch', 'canary']}\n"),
        ("experiment.toml", 'sweep = {model = ["evil:main"], partition.alpha = [0.5]}\n'),
        ("experiment.toml", "track = {mlflow = {uri = 'sqlite:///canary'}}\n"),
        ("table.toml", "imports=['evil']"),
        ("table.toml", "model={name='subprocess:run', args=['touch', 'canary']}"),
    ],
)
def test_code_in_a_folder_needs_trust(
    cli: Cli, home: Path, here: Path, monkeypatch: pytest.MonkeyPatch, file: str, code: str
) -> None:
    """Neither a look at all tables nor the wish for one runs what its files name."""
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    (here / "evil.py").write_text("from pathlib import Path\nPath('canary').touch()\n")
    path = home / file
    if file == "table.toml":
        path.write_text(path.read_text().replace('"rounds=1"', f'"{code}"'))
    else:
        text = path.read_text().replace('[model]\nname = "logistic"', "" if "model" in code else "[model]")
        path.write_text(code + (text.partition("[sweep]")[0] if "sweep" in code else text))
    for words in ([], ["tiny/table1", "--scale", "small"], ["tiny/table1", "--scale", "small", "--probe"]):
        answer = cli("replicate", *words, "--quiet")
        assert answer.code == 2
        assert "add --trust" in answer.err
        assert not (here / "canary").exists()
    if "mlflow" not in code and "sweep" not in code:  # what these would do leaves no trace here
        cli("replicate", "tiny/table1", "--scale", "small", "--trust", "--quiet")
        assert (here / "canary").exists()


def test_a_program_of_somebody_else_needs_trust(cli: Cli, home: Path, here: Path) -> None:
    """Only studies of the tree whose library is running are run unasked."""
    study = 'name = "evil"\nfile = "rows.csv"\nconditions = "a"\nmethod = "b"\ndata = "c"\n'
    (home / "table.toml").write_text(f'about = "a figure"\n[study]\n{study}')
    (here / "studies").mkdir()
    (here / "studies" / "__init__.py").touch()
    (here / "studies" / "evil.py").write_text("from pathlib import Path\nPath('canary').touch()\n")
    answer = cli("replicate", "tiny/table1", "--quiet")
    assert answer.code == 2
    assert f"would run {here / 'studies' / 'evil.py'}" in answer.err
    assert "add --trust" in answer.err
    assert not (here / "canary").exists()
    cli("replicate", "tiny/table1", "--quiet", "--trust")
    assert (here / "canary").exists()


def test_what_a_folder_says_is_no_markup_and_no_order(cli: Cli, home: Path) -> None:
    path = home / "expected.csv"
    path.write_text(path.read_text().replace("FedProx", "[/x]\x1b[31mFedProx").replace("all", "[link=a]b"))
    (home / "table.toml").write_text(TABLE.replace("FedAvg beats", "[/y] \\u001b]0;a\\u0007 beats"))
    answer = cli("replicate", "tiny/table1", "--quiet", "--budget", "1s")
    assert answer.code == 0
    assert "[/x]?" in answer.out
    assert "[/y]" in answer.out
    assert "\x1b" not in answer.out


def test_conditions_that_cannot_be_made_end_no_other_cell(cli: Cli, home: Path) -> None:
    """Of a cell whose clients cannot be dealt the reason is told, once; the others have their numbers."""
    path = home / "experiment.toml"
    path.write_text(path.read_text().replace("[0.5]", "[0.5, 1e-9]"))
    more = "I,FedAvg,rare,partition.alpha=1e-09,fedavg,global.accuracy,0.9,,\n"
    (home / "expected.csv").write_text(EXPECTED + more)
    answer = cli("replicate", "tiny/table1", "--json", "--quiet")
    assert answer.code == 2
    assert re.search("3 of . runs failed; fedavg, partition.alpha=1e-09, seed 0: ", answer.err)
    assert answer.err.count("no Dirichlet draw") == 2  # and when the first of them did
    assert "Traceback" not in answer.err
    seeds = [row["ours"]["seeds"] for row in json.loads(answer.out)["rows"]]
    assert seeds == [3, 3, 0, 0]
