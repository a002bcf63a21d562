"""assign, drift and diagnose --features from the command line, and the mistakes one can make with them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cli_calls import Cli

OLD = "client,0,1,2\nnorth,40,10,0\nsouth,10,40,0\nwest,0,10,40\n"
NEW = "client,0,1,2\nnorth,10,40,0\nsouth,10,40,0\nwest,0,10,40\n"


@pytest.fixture
def run(run_once: Callable[..., Path]) -> str:
    """The directory of a finished run with several groups."""
    (run,) = run_once("--set", "method=['clust_psi_pfl']").glob("clust_psi_pfl*")
    return str(run)


def test_assign_by_counts_samples_and_losses(cli: Cli, here: Path, run: str) -> None:
    (here / "new.csv").write_text("site,0,1,2\ncoast,9,1,0\n")
    (here / "coast.csv").write_text("label\n" + "0\n" * 9 + "1\n")
    counts = cli("assign", run, "--counts", "new.csv", "--client", "site", "--json")
    samples = cli("assign", run, "--counts", "coast.csv", "--label", "label", "--json")
    assert json.loads(counts.out) == json.loads(samples.out)
    text = cli("assign", run, "--counts", "new.csv", "--client", "site").out
    assert "by which clust_psi_pfl groups" in text
    assert "coast" in text
    groups = range(len(json.loads(counts.out)["groups"]))
    losses = ",".join(str(5 - group) for group in groups)
    (here / "losses.csv").write_text(f"client,{','.join(map(str, groups))}\ncoast,{losses}\n")
    answer = json.loads(cli("assign", run, "--losses", "losses.csv", "--json").out)
    assert answer["clients"][0]["group"] == max(groups)
    assert "lowest mean loss" in cli("assign", run, "--losses", "losses.csv").out.replace("\n", " ")


def test_assign_says_who_is_far_and_changes_nothing(cli: Cli, here: Path, run: str) -> None:
    before = sorted(path for path in here.rglob("*") if path.is_file())
    (here / "odd.csv").write_text("client,2\nodd,500\n")
    answer = cli("assign", run, "--counts", "odd.csv", "--all")
    assert answer.err == ""
    assert "Far from every group" in answer.out
    assert sorted(path for path in here.rglob("*") if path.is_file()) == sorted([*before, here / "odd.csv"])


def test_drift_names_the_client_the_band_and_the_classes(cli: Cli, here: Path) -> None:
    (here / "old.csv").write_text(OLD)
    (here / "new.csv").write_text(NEW)
    text = cli("drift", "old.csv", "new.csv").out
    assert "Major shifts (PSI from 0.25): 1 of 3 clients" in text
    assert text.index("north") < text.index("south")
    assert "-60 points" in text
    result = json.loads(cli("drift", "old.csv", "new.csv", "--json").out)
    assert [client["band"] for client in result["clients"]] == ["major", "stable", "stable"]
    assert result["rule"] == ""


def test_drift_with_a_run_says_who_should_move(cli: Cli, here: Path, run: str) -> None:
    """The label counts of the run's clients, and the first one holding what one of another group holds."""
    from fedcohort.runs.stored import FinishedRun

    finished = FinishedRun.read(Path(run))
    counts, classes = finished.counts()
    rows = dict(zip(finished.group, counts.astype(int).tolist(), strict=True))
    first = next(iter(rows))
    other = next(name for name, group in finished.group.items() if group != finished.group[first])
    for name, table in (("old", rows), ("new", {**rows, first: [100 * count for count in rows[other]]})):
        lines = [f"{client},{','.join(map(str, row))}" for client, row in table.items()]
        (here / f"{name}.csv").write_text("\n".join([f"client,{','.join(classes)}", *lines]))
    result = json.loads(cli("drift", "old.csv", "new.csv", "--run", run, "--json").out)
    assert result["rule"] == "the distance by which clust_psi_pfl groups"
    moved = {client["client"]: client["moved"]["nearest"] for client in result["clients"] if client["moved"]}
    assert moved == {first: finished.group[other]}
    assert cli("drift", "old.csv", "new.csv", "--run", run).code == 0
    same = cli("drift", "old.csv", "old.csv", "--run", run).out
    assert "Nobody needs another group" in same


def test_diagnose_features_of_a_table_and_of_an_experiment(cli: Cli, here: Path) -> None:
    rows = [f"h{k % 2},{20 + k + 50 * (k % 2)},{'fm'[k // 2 % 2]},{k // 4 % 2}" for k in range(80)]
    (here / "patients.csv").write_text("\n".join(["hospital,age,sex,outcome", *rows]))
    words = ("diagnose", "patients.csv", "--client", "hospital", "--label", "outcome")
    plain, more = (json.loads(cli(*words, *extra, "--json").out) for extra in ((), ("--features",)))
    features = more.pop("features")
    assert more == plain
    assert features["names"] == ["age", "sex"]
    assert features["wpsi"][0] > 0.25 > features["wpsi"][1]
    text = cli(*words, "--features", "--bins", "2").out
    assert text.index("Verdict") < text.index("Attributes, most different")
    assert len(json.loads(cli("diagnose", "e.toml", "--features", "--json").out)["features"]["names"]) == 4


MISTAKES = {
    "neither counts nor losses": (["assign", "{run}"], "give either --counts or --losses"),
    "no run": (["assign", "nowhere", "--counts", "old.csv"], "nowhere is not the directory of a run"),
    "unknown class": (
        ["assign", "{run}", "--counts", "class.csv"],
        "the run has no class 'x'; known: 0, 1, 2",
    ),
    "missing file": (["assign", "{run}", "--counts", "none.csv"], "there is no file none.csv"),
    "loss that is a word": (["assign", "{run}", "--losses", "word.csv"], "column '0': 'bad' is not a finite"),
    "losses without a client column": (
        ["assign", "{run}", "--losses", "site.csv"],
        "row 1, column 'site': 'a' is not a finite number, name the column of client ids with --client",
    ),
    "losses of too few models": (["assign", "{run}", "--losses", "few.csv"], "give one for each model"),
    "strangers": (["drift", "old.csv", "class.csv"], "no client is in both tables"),
    "clients of no run": (
        ["drift", "old.csv", "old.csv", "--run", "{run}"],
        "client 'north' was not in the run",
    ),
    "features of counts": (["diagnose", "old.csv", "--features"], "--features needs samples, not counts"),
    "one bin": (["diagnose", "e.toml", "--features", "--bins", "1"], "--bins"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_one_sentence(mistake: str, cli: Cli, here: Path, run: str) -> None:
    files = {
        "old.csv": OLD,
        "class.csv": "client,x\na,3\n",
        "word.csv": "client,0,1\na,bad,1\n",
        "few.csv": "client,0\na,1\n",
        "site.csv": "site,0,1\na,1,2\n",
    }
    for name, text in files.items():
        (here / name).write_text(text)
    words, told = MISTAKES[mistake]
    answer = cli(*(word.format(run=run) for word in words))
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert told in answer.err


def test_a_run_that_lost_its_table_is_refused(cli: Cli, here: Path, run: str) -> None:
    (here / "old.csv").write_text(OLD)
    (Path(run) / "table.csv").unlink()
    answer = cli("assign", run, "--counts", "old.csv")
    assert answer.code == 2
    assert "table.csv" in answer.err
    assert "restore it" in answer.err
