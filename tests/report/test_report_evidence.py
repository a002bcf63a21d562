"""What a report reads from run directories, complete or not, and what it refuses to tell."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedcohort as fc
from fedcohort.core.evaluate import Row
from fedcohort.data import Federation
from fedcohort.report import write_report
from fedcohort.report.clients import shares
from fedcohort.report.compose import runs_page
from fedcohort.report.evidence import Labels, Run, gather
from fedcohort.report.groups import group_cards, splits
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import read_result, read_table
from fedcohort.runs.run import Callback
from fedcohort.util.errors import UserError
from support.report_runs import TINY, run_tiny, write_run


def dealt(run: Run) -> Federation:
    """The data of a run, dealt again."""
    return Experiment.of(run.asked.table).federation(run.seed)


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
        federation = dealt(run)
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


def test_seeds_of_one_experiment_are_one_method_and_of_two_are_two(home: Path, tmp_path: Path) -> None:
    """Seed 2 with the same settings joins seeds 0 and 1; with fewer rounds it is something else."""
    more = run_tiny(tmp_path, "fedavg", seeds=[2])
    assert gather([home, more]).titles == ["fedavg", "clust_psi_pfl"]
    other = run_tiny(tmp_path / "other", "fedavg", seeds=[2], rounds=2)
    evidence = gather([home, other])
    assert len(evidence.titles) == 3
    assert "4 or 2 rounds" in runs_page(evidence).subtitle
    assert "· 8 clients ·" in runs_page(evidence).subtitle


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
    assert set(run.clients) <= set(dealt(run).clients)
    assert "8 clients" in runs_page(gather([directory])).subtitle  # also those it has not met


def test_nothing_to_report_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not the directory of a run"):
        gather([tmp_path])
    home = run_tiny(tmp_path, "fedavg", seeds=[0])
    for table in home.glob("*/table.csv"):
        table.unlink()
    with pytest.raises(UserError, match="no run has completed a round yet"):
        gather([home])


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    home = run_tiny(tmp_path, "fedavg", seeds=[0])
    (path,) = home.glob("*/env.json")
    for damage in (lambda: path.write_text("{"), path.unlink):
        damage()
        with pytest.raises(UserError, match=r"env\.json.*restore it"):
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
        assert not np.array_equal(labels.counts, dealt(run).counts)


def test_where_a_directory_keeps_no_label_counts_the_data_are_not_looked_at(tmp_path: Path) -> None:
    """As an older fedcohort left it."""
    home = run_tiny(tmp_path, "fedavg", seeds=[0])
    (path,) = home.glob("*/roster.safetensors")
    path.unlink()
    evidence = gather([home])
    assert "keeps no label counts" in str(evidence.labels_of(evidence.runs[0]))


def by_hand(
    tmp_path: Path, visits: list[tuple[int, int, int]], final: list[int], rounds: int, method: str = "cfl"
) -> Path:
    """A run of as many clients as ``final`` has groups; ``visits`` are rounds, clients and their groups."""
    partition = {"name": "iid", "clients": len(final)}
    experiment = Experiment.of(
        {**TINY, "partition": partition, "rounds": rounds, "method": [method], "seeds": [0]}
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
    assert splits(run) == [(0, None, 1), (1, 0, 2), (2, 1, 4)]


def test_who_slept_through_a_split_does_not_hide_it(tmp_path: Path) -> None:
    """Client 0 trained in group 0 and next in group 2; client 1 tells that group 2 came from group 1."""
    visits = [(1, 0, 0), (1, 1, 0), (2, 1, 1), (2, 2, 1), (3, 0, 2), (4, 1, 2)]
    (run,) = gather([by_hand(tmp_path, visits, [2, 2, 1, 0], 4)]).runs
    assert splits(run) == [(0, None, 1), (1, 0, 2), (2, 1, 3)]


def test_groups_from_the_start_are_no_tree(tmp_path: Path) -> None:
    (run,) = gather([by_hand(tmp_path, [(1, 0, 0), (1, 1, 1)], [0, 1], 2)]).runs
    assert splits(run) == []
    (run,) = gather([by_hand(tmp_path, [(1, 0, 0), (2, 1, 1)], [0, 1], 2, "ifca")]).runs
    assert splits(run) == []  # a client chose the second of two models; none was split off


def test_what_splits_off_groups_of_the_first_round_has_several_roots(tmp_path: Path) -> None:
    (run,) = gather([by_hand(tmp_path, [(1, 0, 0), (1, 1, 1), (2, 2, 1), (3, 2, 2)], [0, 1, 2], 3)]).runs
    assert splits(run) == [(0, None, 1), (1, None, 1), (2, 1, 3)]


@pytest.mark.parametrize(
    "method", ["cfl(eps1=10.0, eps2=0.0, min_round=2)", "fedgwc(tolerance=10.0, min_group=1)"]
)
def test_the_tree_of_a_real_run_is_what_happened(method: str, tmp_path: Path) -> None:
    """Beside each new group: where its clients were in the round before."""
    partition = {"name": "dirichlet", "clients": 16, "alpha": 0.3, "min_size": 4}
    home = run_tiny(tmp_path, method, seeds=[0], rounds=16, cohort=6, partition=partition)
    (run,) = gather([home]).runs
    seen = Genealogy()
    experiment = Experiment.of(run.asked.table)
    fc.run(experiment.methods[0], experiment.task(0), 16, callbacks=[seen])
    assert len(seen.origin) > 2
    _, *children = sorted(splits(run))
    assert [child[:2] for child in children] == [true[:2] for true in seen.origin]
    assert all(child.seen >= true[2] for child, true in zip(children, seen.origin, strict=True))


def test_what_a_grouping_tells_is_told_apart_from_how_clients_are_served(tmp_path: Path) -> None:
    """FedGWC tells the change of each group every round and a weight of each client at the end."""
    home = run_tiny(tmp_path, "fedgwc", seeds=[0], rounds=6)
    (run,) = gather([home]).runs
    when, change = run.by_group["interaction_change", 0]
    assert when.tolist() == [1, 2, 3, 4, 5, 6]
    assert (np.diff(change) < 0).all()
    rows = read_table(run.directory / "table.csv")
    sizes = {row.client: row.value for row in rows if row.metric == "test_size"}
    weights = [row.value for row in rows if row.metric == "gaussian_weight"]
    assert run.test_size.tolist() == list(sizes.values())
    assert len(weights) == len(run.clients)
    assert any("Interaction change of each group" in card.title for card in group_cards(run))


def test_runs_are_found_whatever_they_are_called(home: Path, tmp_path: Path) -> None:
    """A new setting, with its default, changes the names that runs would be given today."""
    older = shutil.copytree(home, tmp_path / "older")
    for number, run in enumerate(path for path in list(older.iterdir()) if path.is_dir()):
        run.rename(older / f"run-{number}")
    assert sorted(gather([older]).titles) == ["clust_psi_pfl", "fedavg"]
    assert len(gather([older]).runs) == 4


class Genealogy(Callback):
    """A callback that notes which group each new one was split off, and when."""

    def __init__(self) -> None:
        self.before: torch.Tensor | None = None
        self.origin: list[tuple[int, int, int]] = []

    def after_round(self, state: Any, report: Any, rows: Any) -> bool:
        now = state.grouping["group"].clone()
        before = torch.zeros_like(now) if self.before is None else self.before
        for group in range(int(before.max()) + 1, int(now.max()) + 1):
            (parent,) = before[now == group].unique().tolist()
            self.origin.append((group, parent, state.round))
        self.before = now
        return False

    def close(self, state: Any) -> None:
        pass


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
