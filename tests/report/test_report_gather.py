"""What a report reads from run directories, complete or not, and what it refuses to tell."""

import json
from pathlib import Path

import numpy as np
import pytest
from report_runs import TINY, run_tiny, write_run

from fedcohort.errors import UserError
from fedcohort.evaluate import Row
from fedcohort.experiment import Experiment
from fedcohort.record import read_result, read_table
from fedcohort.report import write_report
from fedcohort.report.clients import shares
from fedcohort.report.gather import Labels, gather
from fedcohort.report.groups import splits


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_tiny(tmp_path_factory.mktemp("runs"), "fedavg", "clust_psi_pfl", seeds=[0, 1])


def test_runs_are_what_their_tables_say(home: Path) -> None:
    evidence = gather([home])
    assert evidence.titles == ["fedavg", "clust_psi_pfl"]
    assert evidence.seeds == [0, 1]
    for run in evidence.runs:
        assert run.complete
        assert run.metrics == pytest.approx(read_result(run.directory), nan_ok=True)
        when, accuracy = run.curves["global.accuracy"]
        assert when.tolist() == [1, 2, 3, 4]
        assert accuracy[-1] == run.metrics["global.accuracy"]
        federation = run.experiment.federation(run.seed)
        assert run.clients == federation.clients
        trained = [row for row in read_table(run.directory / "table.csv") if row.metric == "trained"]
        assert run.trained.sum() == sum(row.value for row in trained)
        tested = run.test_size > 0
        assert np.average(run.accuracy[tested], weights=run.test_size[tested]) == pytest.approx(accuracy[-1])
        labels = evidence.labels_of(run)
        assert isinstance(labels, Labels)
        assert labels.counts.tolist() == federation.counts.tolist()


def test_single_runs_and_a_comparison_may_be_mixed_and_count_once(home: Path) -> None:
    one = next(path for path in home.iterdir() if path.is_dir())
    assert len(gather([one]).runs) == 1
    assert len(gather([one, home, one]).runs) == 4


def test_the_same_method_twice_gets_two_names(home: Path, tmp_path: Path) -> None:
    """Their directories' names, or their paths where these are the same."""
    again = run_tiny(tmp_path, "fedavg", seeds=[0], rounds=2)
    titles = gather([home, again]).titles
    assert titles == [f"fedavg, {home}", "clust_psi_pfl", f"fedavg, {again}"]
    third = run_tiny(tmp_path, "fedavg", seeds=[0], rounds=2)
    assert gather([again, third]).titles == ["fedavg, tiny-001", "fedavg, tiny-002"]


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    """A line that is only half written is left out, and so is what only the last round tells."""
    directory = next(path for path in run_tiny(tmp_path, "fedavg", seeds=[0]).iterdir() if path.is_dir())
    (directory / "result.json").unlink()
    table = directory / "table.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if not line.startswith("4,")) + "4,round,,,coh")
    (run,) = gather([directory]).runs
    assert not run.complete
    assert run.rounds == 3
    assert np.isnan(run.accuracy).all()
    assert set(run.clients) <= set(run.experiment.federation(0).clients)


def test_nothing_to_report_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the directory of a run"):
        gather([tmp_path])
    home = run_tiny(tmp_path, "fedavg", seeds=[0])
    for table in home.glob("*/table.csv"):
        table.unlink()
    with pytest.raises(UserError, match="no run has completed a round yet"):
        gather([home])


@pytest.mark.parametrize(
    ("privacy", "told"),
    [({"counts": "withheld"}, "withheld"), ({"counts": "noised", "epsilon": 0.5}, "noise")],
)
def test_labels_are_no_more_exact_than_the_run_allowed(privacy: dict, told: str, tmp_path: Path) -> None:
    evidence = gather([run_tiny(tmp_path, "fedavg", seeds=[0], privacy=privacy)])
    (run,) = evidence.runs
    labels = evidence.labels_of(run)
    if isinstance(labels, str):
        assert told in labels
    else:
        assert told in labels.note
        assert not np.array_equal(labels.counts, run.experiment.federation(0).counts)


def test_labels_of_other_data_are_not_shown(tmp_path: Path) -> None:
    home = run_tiny(tmp_path, "fedavg", seeds=[0])
    (path,) = home.glob("*/env.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "fingerprint": "other"}))
    evidence = gather([home])
    assert "data changed" in str(evidence.labels_of(evidence.runs[0]))


def by_hand(tmp_path: Path, visits: list[tuple[int, int, int]], final: list[int], rounds: int) -> Path:
    """A run of as many clients as ``final`` has groups; ``visits`` are rounds, clients and their groups."""
    partition = {"name": "iid", "clients": len(final)}
    experiment = Experiment.of(
        {**TINY, "partition": partition, "rounds": rounds, "method": ["cfl"], "seeds": [0]}
    )
    names = experiment.federation(0).clients
    rows = [Row(number, "global", "", "", "accuracy", 0.5) for number in range(1, rounds + 1)]
    rows += [
        Row(number, "cohort", names[client], str(group), "trained", 1.0) for number, client, group in visits
    ]
    for name, group in zip(names, final, strict=True):
        rows += [Row(rounds, "personal", name, str(group), "accuracy", 0.5)]
    return write_run(tmp_path, experiment, sorted(rows, key=lambda row: row.round))


def test_splits_are_told_from_where_clients_trained(tmp_path: Path) -> None:
    """Group 1 split off group 0 in round 2; group 2 off group 1, seen at the end only."""
    visits = [(1, 0, 0), (1, 1, 0), (2, 2, 1), (2, 0, 0), (3, 3, 1)]
    directory = by_hand(tmp_path, visits, [0, 0, 1, 2], 4)
    (run,) = gather([directory]).runs
    assert splits(run) == [(1, 0, 2), (2, 1, 4)]


def test_groups_from_the_start_are_no_tree(tmp_path: Path) -> None:
    (run,) = gather([by_hand(tmp_path, [(1, 0, 0), (1, 1, 1)], [0, 1], 2)]).runs
    assert splits(run) == []


def test_participation_is_the_share_of_rounds_trained(tmp_path: Path) -> None:
    """Five rounds in columns of two: the last column is a single round."""
    visits = [(1, 0, 0), (2, 0, 0), (3, 1, 0), (5, 1, 0)]
    (run,) = gather([by_hand(tmp_path, visits, [0, 0], 5)]).runs
    assert shares(run, 2).tolist() == [[1, 0, 0], [0, 0.5, 1]]
    assert run.trained.tolist() == [2, 2]


def test_runs_without_test_samples_and_stopped_runs_have_a_report_too(tmp_path: Path) -> None:
    home = run_tiny(tmp_path, "fedavg", "ifca", seeds=[0], split={"test": 0})
    for result in home.glob("ifca*/result.json"):
        result.unlink()
    text = write_report([home], tmp_path / "report.html").read_text()
    assert "No accuracy is known" in text
    assert "1 of 2 runs not complete" in text
    assert "it had no test samples" in text
    assert "Accuracy by round" not in text
