"""One frame of all numbers of runs, and the table of a comparison."""

import csv
from pathlib import Path

import pytest

import fedcohort as fc
from fedcohort.cli.progress import Silent
from fedcohort.report.evidence import gather
from fedcohort.runs.comparison import resume
from fedcohort.runs.outcomes.results import write_summary
from fedcohort.runs.outcomes.standings import with_conditions
from fedcohort.runs.stored import read_result, read_table, runs_of
from fedcohort.util.errors import UserError
from support.report_runs import run_swept
from support.result_dirs import a_result


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_swept(tmp_path_factory.mktemp("swept"))


def test_the_frame_has_every_number_and_setting(home: Path) -> None:
    frame = fc.results(home)
    assert list(frame.columns[:4]) == ["method", "seed", "run", "complete"]
    assert list(frame.columns[-5:]) == ["round", "metric", "client", "group", "value"]
    assert len(frame) == sum(len(read_table(run / "table.csv")) for run in runs_of(home))
    last = frame[(frame["metric"] == "global.accuracy") & (frame["round"] == 4)]
    assert len(last) == 8
    for run in runs_of(home):
        (value,) = last[last["run"] == run.name]["value"]
        assert value == read_result(run)["global.accuracy"]
    assert sorted(set(last["partition.alpha"])) == [0.3, 3.0]
    assert set(last[last["method"] == "fedprox"]["method.fedprox.mu"]) == {0.01}
    assert last[last["method"] == "fedavg"]["method.fedprox.mu"].isna().all()
    own = frame[(frame["metric"] == "personal.accuracy") & frame["client"].notna()]
    assert own.groupby(["run", "round"]).size().to_dict() == {
        (run.name, number): 8 for run in runs_of(home) for number in (2, 4)
    }


def test_runs_of_several_directories_and_unfinished_ones_share_a_frame(tmp_path: Path) -> None:
    first = a_result(tmp_path / "a", "fedavg", 0, [0.5, 0.6])
    second = a_result(tmp_path / "b", "fedavg", 1, [0.7], model={"name": "mlp", "widths": [3]})
    (second / "result.json").unlink()
    frame = fc.results([first, str(tmp_path / "b"), first])
    assert frame.groupby("seed")["complete"].first().to_dict() == {0: True, 1: False}
    assert frame["model.widths"].isna().sum() == 4  # two rounds, two numbers
    with pytest.raises(UserError, match="is not the directory of a run"):
        fc.results(tmp_path)


def test_a_comparison_has_a_table_of_its_runs_and_a_run_keeps_its_own(home: Path) -> None:
    outcomes = with_conditions(home, [run.outcome for run in gather([home]).runs])
    before = {run: (run / "table.csv").read_bytes() for run in runs_of(home)}
    write_summary(home, outcomes)
    with (home / "table.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    told = {(line["method"], line["seed"], line["partition.alpha"]): line for line in lines}
    assert len(told) == len(lines) == 8
    for outcome in outcomes:
        line = told[outcome.method, str(outcome.seed), str(outcome.settings["partition.alpha"])]
        assert float(line["global.accuracy"]) == outcome.metrics["global.accuracy"]
    one = outcomes[0].directory
    write_summary(one, resume(one, Silent()))
    assert {run: (run / "table.csv").read_bytes() for run in runs_of(home)} == before
    assert len(gather([home]).runs) == 8
