"""From nothing to a model in use: the commands of README.md on real tables, with what it says they print."""

import csv
import re
import runpy
import shlex
from pathlib import Path

import polars as pl
import pytest

import fedcohort as fc
from support import REPOSITORY
from support.cli_calls import Cli


def words(text: str) -> set[str]:
    """Without numbers: these are the machine's."""
    return {*re.findall(r"[a-z_]{3,}", text.lower())}


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def tables(real_data: Path, here: Path) -> None:
    if not (real_data / "heart_disease_uci").is_dir():
        pytest.skip(f"no heart_disease_uci below {real_data}")
    runpy.run_path(str(REPOSITORY / "scripts/hearts.py"))["write_tables"](real_data, here)


@pytest.mark.usefixtures("tables")
@pytest.mark.deploy
def test_the_journey_of_the_readme(cli: Cli) -> None:
    shown = (REPOSITORY / "README.md").read_text().split("<!-- start -->")[1].split("<!-- end -->")[0]
    said = ""
    for command in re.findall(r"^\$ (fedcohort .*)$", shown, re.M):
        answer = cli(*shlex.split(command)[1:])
        assert answer.code == 0, answer.err
        said += answer.out
    printed = re.sub(
        r"^(\$|P\d+,|patient,|```).*$", "", shown, flags=re.M
    )  # not commands, nor rows of a file
    stale = words(printed) ^ words(said)
    assert not stale, f"run .venv/bin/python -m scripts.update_readme start, for {sorted(stale)}"
    assert "patient" in fc.Experiment.read("experiment.toml").settings.data["exclude"]
    assert "<html" in Path("report.html").read_text()
    answers = rows("predictions.csv")
    assert [row["patient"] for row in answers] == [row["patient"] for row in rows("new.csv")]
    for row in answers:
        chances = {name: float(row[f"p_{name}"]) for name in ("no", "yes")}
        assert sum(chances.values()) == pytest.approx(1)
        likely = max(chances, key=lambda name: chances[name])
        assert row["prediction"] == (likely if chances[likely] >= 0.7 else "")
    assert len(rows("newcomers.csv")) == len(rows("newcomer.csv"))
    patients = pl.read_csv("patients.csv", infer_schema=False)
    right = [
        one == other
        for one, other in zip(fc.load_model("model").predict(patients), patients["disease"], strict=True)
    ]
    assert sum(right) > 0.75 * len(right)


@pytest.mark.usefixtures("tables")
def test_who_does_not_know_where_to_begin_is_told(cli: Cli) -> None:
    answer = cli("diagnose", "patients.csv")
    assert answer.code == 2
    assert answer.err.rstrip().endswith("add --client hospital --label disease")
    assert cli("diagnose", "patients.csv", *answer.err.split("add ")[1].split()).code == 0
