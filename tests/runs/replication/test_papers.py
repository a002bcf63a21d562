"""The folders of ``papers/``: each is complete, its results are of its experiment file, and it runs."""

import csv
import json
import math
import re
import subprocess
from pathlib import Path

import pytest

from fedcohort.cli.app import main
from fedcohort.presets import papers
from fedcohort.runs.replication.folders import EXPERIMENT, Folder, folders
from fedcohort.runs.replication.replication import Replication, stale
from fedcohort.runs.replication.study import run_study
from fedcohort.runs.replication.verdicts import judge
from support import REPOSITORY

PAPERS = REPOSITORY / "papers"
FOLDERS = {folder.name: folder for folder in folders(PAPERS)}
each_folder = pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)


@each_folder
def test_a_folder_is_complete(folder: Folder, tmp_path: Path) -> None:
    assert folder.paper in papers()
    assert (folder.path / "README.md").read_text().startswith("# ")
    assert (folder.path / EXPERIMENT).exists() == (folder.study is None)
    assert {judged.verdict for judged in judge(folder, [])} <= {"open"}
    assert "smoke" in folder.scales
    assert folder.cells
    keys = [(each.table, each.row, each.column) for each in folder.published]
    assert len(set(keys)) == len(keys)
    for scale in folder.scales if folder.study is None else ():
        asked = Replication(folder, scale, tmp_path)
        assert len(asked.jobs) == len(asked.asked) * len(asked.experiment.seeds)
        sources = {job.experiment.data["source"] for job in asked.jobs.values()}
        files = {job.experiment.data.get("path") for job in asked.jobs.values()} - {None}
        assert sources == {"digits"} if scale == "smoke" else (files or sources) <= set(asked.data)


@each_folder
def test_results_belong_to_the_experiment_as_it_is(folder: Folder) -> None:
    old = stale(folder)
    assert not old, f"{folder.path}/results.csv has lines of other settings, run them again: {old[:5]}"


@pytest.mark.parametrize("name", [name for name, folder in FOLDERS.items() if folder.study is not None])
def test_a_study_of_our_own_tree_needs_no_trust(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose program is begun unasked; what it does then is seen by ``test_it_runs``."""
    begun: list[Path] = []

    def program(words: list[str], cwd: Path, **_: object) -> subprocess.CompletedProcess:
        begun.append(cwd)
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(subprocess, "run", program)
    folder = FOLDERS[name]
    assert folder.study is not None
    run_study(folder, folder.study, "smoke", tmp_path)
    assert begun == [REPOSITORY]


@pytest.mark.deploy
@each_folder
def test_it_runs(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """A few rounds on digits: every method and all conditions."""
    monkeypatch.delenv("FEDCOHORT_DATA", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "src"))
    words = ["--scale", "smoke", "--papers", str(PAPERS), "--out", str(tmp_path), "--json", "--quiet"]
    with pytest.raises(SystemExit) as end:
        main(["replicate", folder.name, *words])
    assert end.value.code in (0, None)
    told = json.loads(capsys.readouterr().out)
    assert told["called"].startswith("a trial of the machinery")
    assert told["runs_left"] == 0
    made = Replication(folder, "smoke", tmp_path).results
    assert made
    if folder.study is None:
        assert {each.cell.method for each in made} == {cell.method for cell in folder.cells}
        assert {each.cell.conditions for each in made} == {cell.conditions for cell in folder.cells}


def test_published_numbers_are_in_the_papers_text() -> None:
    """Where the papers' texts are at hand: every number of expected.csv stands there, as it is printed."""
    texts = REPOSITORY.parent / "shared" / "papers"
    if not texts.is_dir():
        pytest.skip(f"the papers' texts are not at {texts}")
    for folder in FOLDERS.values():
        text = (texts / f"{folder.paper}.txt").read_text()
        numbers = set(re.findall(r"\d+(?:\.\d+)?", text))
        with (folder.path / "expected.csv").open() as file:
            for row in csv.DictReader(file):
                for printed in (row["value"], row["std"]):
                    assert not printed or printed.lstrip("-") in numbers, (folder.name, row)


def test_a_published_number_that_is_missing_is_no_number() -> None:
    (last,) = [
        each
        for each in FOLDERS["fedentopt/table1"].published
        if each.column == "CIFAR-100, C = 3" and each.row == "KL"
    ]
    assert math.isnan(last.value)
