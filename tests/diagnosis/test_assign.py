"""Newcomers join the nearest group of a finished run; numbers by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from fedcohort.cli.progress import Silent
from fedcohort.diagnosis.assign import Joining, aligned, distances, join_by_counts, join_by_losses
from fedcohort.diagnosis.read import Counts
from fedcohort.methods.clust_psi_pfl import ClustPsiPfl
from fedcohort.methods.one import One
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.stored import FinishedRun
from fedcohort.util.errors import UserError

MEMBERS = np.array([[80, 20], [60, 40], [0, 10], [0, 0]])
GROUP = np.array([0, 0, 1, 1])


def experiment(method: str, **changes: object) -> Experiment:
    table = {
        "method": method,
        "rounds": 1,
        "cohort": 3,
        "data": {"source": "synthetic", "samples": 160, "classes": 4, "features": 3},
        "partition": {"name": "classes_per_client", "clients": 8, "classes": 2},
        "model": "logistic",
        **changes,
    }
    return Experiment.of(table)


def finished(folder: Path, method: str = "clust_psi_pfl", **changes: object) -> FinishedRun:
    _, (outcome,) = compare(experiment(method, **changes), folder, Silent())
    return FinishedRun.read(outcome.directory)


def test_hellinger_and_psi_by_hand():
    """Group 0 pools to (.7, .3), group 1 to (0, 1); a newcomer with (.5, .5).

    H² = 1 - (√.35 + √.15) = 1 - .978906 to group 0, 1 - √.5 = .292893 to group 1.
    PSI to group 0 = .2 ln 1.4 + .2 ln(.5 / .3) = .067294 + .102165 = .169460.
    Members of group 0 are √(1 - √.56 - √.06) = .082 and √(1 - √.42 - √.12) = .074 away from it.
    """
    found = distances(One(), GROUP, MEMBERS, np.array([[5, 5]]))
    assert found.groups == [0, 1]
    assert found.hellinger[0] == pytest.approx([0.145238, 0.541196], abs=1e-5)
    assert found.psi[0, 0] == pytest.approx(0.169460, abs=1e-5)
    assert found.value is found.hellinger
    assert found.farthest == pytest.approx([np.sqrt(1 - np.sqrt(0.56) - np.sqrt(0.06)), 0.0], abs=1e-9)


def test_clust_psi_pfl_places_by_its_own_features():
    """A member is as far from its group's centre as K-means saw it, and a copy of a member lands with it."""
    counts = np.array([[90, 5, 5], [88, 6, 6], [5, 90, 5], [6, 88, 6], [30, 30, 40], [33, 30, 37]])
    part = ClustPsiPfl(signed=True)
    group = np.array([0, 0, 1, 1, 2, 2])
    found = distances(part, group, counts, counts)
    assert found.rule == "the distance by which clust_psi_pfl groups"
    assert found.value.argmin(axis=1).tolist() == group.tolist()
    assert found.value[0, 0] == pytest.approx(found.value[1, 0])  # the centre of two is halfway
    assert (found.hellinger[range(6), group] <= found.farthest[group] + 1e-12).all()
    assert ClustPsiPfl(features=4).place(*(None, None, None)) is None  # type: ignore[arg-type]


def test_a_copy_of_a_member_joins_its_group_and_is_not_far(tmp_path: Path):
    run = finished(tmp_path)
    counts, classes = run.counts()
    names = [f"copy of {name}" for name in run.group]
    joining = join_by_counts(run, Counts(counts.astype(np.int64), names, classes))
    assert joining.group == list(run.group.values())
    assert not any(joining.far)
    assert sum(joining.members) == 8
    json.dumps(joining.to_dict())


def test_a_copy_of_a_whole_group_is_not_far():
    """The features of clust_psi_pfl alone would say so: what two members deviate by is, on average, much more
    than what their labels taken together do."""
    counts, group = np.array([[90, 10, 0], [0, 10, 90], [50, 50, 50], [52, 48, 50]]), np.array([0, 0, 1, 1])
    found = distances(ClustPsiPfl(), group, counts, counts[:2].sum(0, keepdims=True))
    assert found.psi[0, 0] == pytest.approx(0, abs=1e-9)
    told = found.hellinger, found.psi, found.farthest
    assert Joining(found.rule, found.groups, [2, 2], ["like 0"], found.value, "", *told).far == [False]


def test_who_is_far_from_every_member_is_named(tmp_path: Path):
    """Members hold two of four classes in equal parts; nobody holds one class alone."""
    run = finished(tmp_path)
    joining = join_by_counts(run, Counts(np.array([[100]]), ["odd"], ["0"]))
    assert joining.far == [True]
    assert joining.to_dict()["clients"][0]["far"] is True


def test_a_run_of_one_model_has_one_answer(tmp_path: Path):
    joining = join_by_counts(finished(tmp_path, "fedavg"), Counts(np.array([[1, 2]]), ["new"], ["3", "0"]))
    assert joining.group == [0]
    assert joining.note.startswith("One model serves all")


def test_where_everybody_has_a_model_a_newcomer_needs_one_too(tmp_path: Path):
    alone, newcomer = finished(tmp_path, "local_only"), Counts(np.array([[1, 2]]), ["new"], ["3", "0"])
    for join in (
        lambda: join_by_counts(alone, newcomer),
        lambda: join_by_losses(alone, np.array([[0.2]]), ["a"], ["0"]),
    ):
        with pytest.raises(UserError, match="has its own model, so a newcomer needs one too"):
            join()
    joining = join_by_counts(finished(tmp_path, "fedsoft(groups=2)"), newcomer)
    assert joining.note.startswith("Every client of this run has its own model")


def test_the_lowest_loss_decides_whatever_the_order_of_columns(tmp_path: Path):
    run = finished(tmp_path, "ifca(groups=2)")
    joining = join_by_losses(run, np.array([[0.2, 0.9], [0.8, 0.7]]), ["a", "b"], ["group 1", "group 0"])
    assert joining.group == [1, 0]
    assert joining.value.tolist() == [[0.9, 0.2], [0.7, 0.8]]
    with pytest.raises(UserError, match="give one for each model of the run, 0, 1"):
        join_by_losses(run, np.array([[0.2]]), ["a"], ["0"])


def test_labels_are_a_makeshift_for_a_method_that_does_not_group_by_them(tmp_path: Path):
    run = finished(tmp_path, "ifca(groups=2)", rounds=3)
    run.group.update({name: number % 2 for number, name in enumerate(run.group)})  # both models in use
    joining = join_by_counts(run, Counts(np.array([[1, 1]]), ["new"], ["0", "1"]))
    assert "ifca did not group by labels" in joining.note
    assert joining.rule.startswith("Hellinger")


def test_classes_are_matched_by_name():
    assert aligned(Counts(np.array([[3, 1]]), ["x"], ["b", "a"]), ["a", "b", "c"]).tolist() == [[1, 3, 0]]
    with pytest.raises(UserError, match="the run has no class 'bravo', did you mean 'brava'"):
        aligned(Counts(np.array([[3]]), ["x"], ["bravo"]), ["alpha", "brava"])


def test_what_privacy_withheld_is_not_looked_up(tmp_path: Path):
    run = finished(tmp_path, "fedavg", privacy={"counts": "withheld"})
    with pytest.raises(UserError, match=r"withheld its clients' label counts .* give --losses"):
        join_by_counts(run, Counts(np.array([[1, 2]]), ["new"], ["0", "1"]))


def test_runs_that_cannot_be_joined_are_refused(tmp_path: Path):
    run = finished(tmp_path)
    with pytest.raises(UserError, match="client 'none' has no samples"):
        join_by_counts(run, Counts(np.array([[0]]), ["none"], ["0"]))
    (run.directory / "roster.safetensors").unlink()
    with pytest.raises(UserError, match=r"keeps no label counts.*run --resume .* adds them"):
        run.counts()
    (run.directory / "result.json").unlink()
    with pytest.raises(UserError, match="is not finished: continue it with 'fedcohort run --resume"):
        FinishedRun.read(run.directory)
    home, _ = compare(experiment(["fedavg", "clust_psi_pfl"]), tmp_path, Silent())  # type: ignore[arg-type]
    with pytest.raises(UserError, match="holds 2 runs: name one of them, like"):
        FinishedRun.read(home)
    with pytest.raises(UserError, match="is not the directory of a run"):
        FinishedRun.read(tmp_path)
