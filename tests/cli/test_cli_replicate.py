"""``replicate``: lists papers' tables, and shows one with the paper's numbers and ours."""

import json
from pathlib import Path

import pytest

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
    told = {key: before[0][key] for key in ("cells", "done", "seeds", "verdict", "data", "seconds_left")}
    assert told == {
        "cells": 2, "done": 0, "seeds": 3, "verdict": "1 open", "data": ["synthetic"], "seconds_left": None
    }  # fmt: skip
    assert "not probed" in cli("replicate").out
    cli("replicate", "tiny/table1", "--probe", "--quiet")
    assert json.loads(cli("replicate", "--json").out)[0]["seconds_left"] > 0
    cli("replicate", "tiny/table1", "--quiet")
    after = json.loads(cli("replicate", "--json").out)[0]
    assert (after["done"], after["runs_left"], after["seconds_left"]) == (2, 0, 0)
    assert after["verdict"] in ("1 confirmed", "1 weaker", "1 not reproduced", "1 reversed")


def test_a_table_shows_both_numbers_and_what_they_say(cli: Cli, home: Path) -> None:
    answer = cli("replicate", "tiny/table1", "--quiet")
    assert answer.code == 0
    assert "paper: a replication: the paper's protocol" in answer.out
    assert "0.400 ± 0.010" in answer.out
    assert "not run" in answer.out
    assert "FedAvg beats FedProx" in answer.out
    told = json.loads(cli("replicate", "tiny/table1", "--scale", "small", "--json", "--quiet").out)
    assert told["called"] == "a scaled test, not a replication (one round)"
    row, claim = told["rows"][0], told["claims"][0]
    assert row["ours"]["seeds"] == 3
    assert row["difference"] == pytest.approx(row["ours"]["mean"] - 0.40)
    assert row["interval"][0] <= row["difference"] <= row["interval"][1]
    assert claim["paper"] == pytest.approx(0.59)
    assert len(claim["differences"]) == 3
    assert told["rows"][2]["ours"] == {"mean": None, "std": None, "seeds": 0}


def test_lines_of_other_settings_are_left_out_with_a_word(cli: Cli, home: Path) -> None:
    cli("replicate", "tiny/table1", "--quiet", "--cells", "fedavg")
    path = home / "experiment.toml"
    path.write_text(path.read_text().replace("cohort = 3", "cohort = 2"))
    answer = cli("replicate", "tiny/table1", "--quiet", "--budget", "1s", "--cells", "fedprox")
    assert "3 lines of results.csv are of other settings" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tiny/tabel1"], "unknown table 'tiny/tabel1', did you mean 'tiny/table1'?"),
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
