"""From nothing to a model in use where hospitals are elsewhere: the experiment file that ``init`` writes, a
deployment of processes, and what each hospital does with its model."""

import csv
import json
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

from support import REPOSITORY
from support.deployment import FEDCOHORT, Deployment, read_rows
from support.loopback import own_network

pytestmark = pytest.mark.deploy

HEARTS = runpy.run_path(str(REPOSITORY / "scripts/hearts.py"))
SITES = HEARTS["HOSPITALS"]


def fedcohort(folder: Path, words: str) -> str:
    done = subprocess.run(
        [FEDCOHORT, *words.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_own_tables(folder: Path) -> None:
    """What each hospital has."""
    patients = rows(folder / "patients.csv")
    for site in SITES:
        with (folder / f"{site}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, patients[0])
            writer.writeheader()
            writer.writerows(row for row in patients if row["hospital"] == site)


def test_three_hospitals_begin_train_and_use_their_model(tmp_path: Path, real_data: Path) -> None:
    if not (real_data / "heart_disease_uci").is_dir():
        pytest.skip(f"no heart_disease_uci below {real_data}")
    HEARTS["write_tables"](real_data, tmp_path)
    write_own_tables(tmp_path)
    fedcohort(tmp_path, "init patients.csv --client hospital --label disease --out e.toml")
    experiment = tomllib.loads((tmp_path / "e.toml").read_text())
    experiment |= {"method": ["fedavg"], "seeds": [0], "rounds": 3}
    experiment["data"] |= {"classes": ["no", "yes"]}
    with own_network() as network, Deployment(tmp_path, network, experiment, clients=3, wanted=3) as there:
        there.start_server()
        for number, site in enumerate(SITES):
            table = str(tmp_path / f"{site}.csv")
            there.start_client(number, "--data", table, "--label", "disease", "--privacy", "exact")
        for number in range(len(SITES)):
            there.clients[number].wait_for("SuperNode ID:")
        run = there.start_run(round_timeout=300)
        assert there.wait_for_run(run, 400) == "finished:completed", there.server.text[-3000:]
    assert read_rows(there.results())[3, "global.accuracy"] > 0.7
    assert "<html" in there.report()
    for number in range(len(SITES)):  # a hospital needs nothing of the server
        fedcohort(tmp_path, f"export node-{number} --out model-{number}")
        fedcohort(tmp_path, f"predict model-{number} new.csv --id patient --out answers-{number}.csv")
    answers = [rows(tmp_path / f"answers-{number}.csv") for number in range(len(SITES))]
    assert answers[0] == answers[1] == answers[2]
    assert [row["patient"] for row in answers[0]] == [row["patient"] for row in rows(tmp_path / "new.csv")]
    export = "--newcomer newcomer.csv --label disease --rows newcomer.csv --out model"
    fedcohort(tmp_path, f"export {there.results().relative_to(tmp_path)} {export}")
    fedcohort(tmp_path, "predict model newcomer.csv --out newcomers.csv")
    assert len(rows(tmp_path / "newcomers.csv")) == len(rows(tmp_path / "newcomer.csv"))
    told = json.loads(
        fedcohort(tmp_path, "drift patients.csv later.csv --client hospital --label disease --json")
    )
    assert {client["client"] for client in told["clients"]} == {*SITES}
