"""``results.csv`` and the rows of studies: a line a run, whoever writes it and from where."""

from pathlib import Path

import pytest

from fedcohort.runs.experiment import Experiment
from fedcohort.runs.replication.folders import Folder, Study, folders
from fedcohort.runs.replication.results import ResultRow, add_results, read_results, settings_hash
from fedcohort.runs.replication.study import study_results
from fedcohort.util.errors import UserError
from fedcohort.util.filelock import held


def test_a_study_tells_data_and_time_and_time_is_no_setting(folder: Folder, tmp_path: Path) -> None:
    study = Study("x", "rows.csv", "partition.alpha=$alpha", "fedavg", "")
    found = []
    for seconds in ("2.5", "3.5"):
        row = f"50.0,0.5,abc,{seconds}"
        (tmp_path / "rows.csv").write_text(f"alpha,global.accuracy,labels,seconds\n{row}\n")
        found += study_results(folder, study, "paper", tmp_path)
    assert [(each.about["seconds"], each.about["data"]) for each in found] == [("2.5", "abc"), ("3.5", "abc")]
    assert found[0].config == found[1].config


def test_the_working_directory_is_no_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is there has an absolute path; elsewhere it is found below the folder of data."""
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.csv").write_text("a,label\n1,x\n2,y\n")
    hashes = []
    for place in (tmp_path, tmp_path / "adult", tmp_path.parent):
        monkeypatch.chdir(place)
        data = {"source": "table", "path": "adult/adult.csv", "label": "label"}
        asked = Experiment.of({"method": ["fedavg"], "data": data})
        hashes.append(settings_hash(asked.table(asked.methods[0], 0)))
    assert len(set(hashes)) == 1


def test_a_result_is_written_once(folder: Folder, tmp_path: Path) -> None:
    """Two processes with directories of their own have made the same run."""
    path = tmp_path / "results.csv"
    about = {"conditions": "a", "method": "b", "scale": "paper", "seed": "0", "config": "c"}
    add_results(path, [ResultRow(about, {"ad": 1.0})])
    add_results(path, [ResultRow(about, {"ad": 2.0}), ResultRow({**about, "seed": "1"}, {"ad": 3.0})])
    assert [(each.seed, each.values["ad"]) for each in read_results(path)] == [(0, 1.0), (1, 3.0)]


def test_one_process_at_a_time_writes_results(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(UserError, match="another process"):
        add_results(tmp_path / "results.csv", [])


def test_a_study_row_without_a_seed_is_damaged(tmp_path: Path, folder: Folder) -> None:
    study = Study("x", "rows.csv", "all", "one", "")
    (tmp_path / "rows.csv").write_text("seed,groups\n1.5,3\n")
    with pytest.raises(UserError, match=r"'1\.5' is no seed"):
        study_results(folder, study, "paper", tmp_path)


def test_a_column_is_no_metric(folder: Folder) -> None:
    path = folder.path / "table.toml"
    path.write_text(path.read_text().replace('also = ["bytes_up"]', 'also = ["seed"]'))
    with pytest.raises(UserError, match="'seed' is no metric but a column"):
        _ = Folder(folder.path).metrics


def test_a_folder_that_is_a_link_is_no_table(folder: Folder, tmp_path: Path) -> None:
    (folder.path.parent / "table2").symlink_to(folder.path)
    assert [each.name for each in folders(tmp_path / "papers")] == ["tiny/table1"]
