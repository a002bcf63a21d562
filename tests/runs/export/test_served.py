"""What an exported model answers is what its run answers: every kind of data, every way to serve a client."""

from pathlib import Path

import numpy as np
import pytest

from fedcohort.cli.progress import Silent
from fedcohort.runs.comparison import resume
from fedcohort.runs.export.served import Whose, served_model
from fedcohort.runs.stored import FinishedRun
from fedcohort.serving.model import load_model
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError
from support.model_runs import answered_by_run, asked, finished, raw_rows

SMALL = "support.networks:small_cnn"


def same_answers(experiment, folder: Path, **how) -> None:
    """Of every client, through the files of a folder."""
    run = finished(experiment, folder / "runs")
    for number, known in enumerate(answered_by_run(experiment)):
        name = list(run.group)[number]
        served_model(run, Whose(client=name), **how).model.save(folder / name)
        answers = load_model(folder / name, allow=[SMALL]).predict_proba(known.rows)
        np.testing.assert_allclose(answers, known.answers, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["table", "texts", "npz", "images"])
def test_every_kind_of_data(kind: str, tmp_path: Path) -> None:
    same_answers(asked(kind, tmp_path, "fedavg"), tmp_path)


@pytest.mark.parametrize(
    "options", [{"missing": "median"}, {"missing": "constant", "dates": []}, {"drop_incomplete": True}]
)
def test_every_way_to_read_a_table(options: dict, tmp_path: Path) -> None:
    """Dates, columns that are left out, classes of an amount, and all that is done about empty cells."""
    changes = {"exclude": ["row", "seen"]} if options.get("missing") == "constant" else {}
    experiment = asked("dated", tmp_path, "fedavg", data={**options, **changes})
    assert experiment.dataset.num_classes == 3
    assert len(experiment.dataset) == (96 if "missing" in options else 74)
    same_answers(experiment, tmp_path)


@pytest.mark.parametrize(
    "method",
    [
        "ifca(groups=2)",  # who is served by which group is known when it is asked, and kept in the table
        "clust_psi_pfl",
        "local_only",
        "fedsoft(groups=2)",
        "feddyn",
        "centralised",
        "fedconcat(groups=2, rounds=1)",
        "ifca(groups=2)+finetune",
        "fedconcat(groups=2, rounds=1)+finetune",
        "local_only+finetune(layers='last')",
    ],
)
def test_every_way_to_serve_a_client(method: str, tmp_path: Path) -> None:
    same_answers(asked("npz", tmp_path, method), tmp_path)


@pytest.mark.parametrize("method", ["fedavg", "fedavg+finetune"])
@pytest.mark.parametrize("bn", ["average", "local", "fresh"])
def test_batchnorm_in_all_modes(bn: str, method: str, tmp_path: Path) -> None:
    same_answers(asked("images", tmp_path, method, model=SMALL, local={"bn": bn}), tmp_path, trust=True)


@pytest.mark.parametrize("missing", ["mean", "median"])
@pytest.mark.parametrize("scale", ["client", "none"])
def test_a_scale_of_ones_own_comes_from_rows_of_who_uses_the_model(
    scale: str, missing: str, tmp_path: Path
) -> None:
    """No run directory keeps it; missing numbers are filled by the same rows."""
    data = {"scale": scale, "missing": missing}
    experiment = asked("table", tmp_path, "fedavg", data=data, local={"lr": 1e-4})
    run = finished(experiment, tmp_path / "runs")
    with pytest.raises(UserError, match="--rows"):
        served_model(run, Whose())
    for number, known in enumerate(answered_by_run(experiment)):
        known.rows.drop("@file").write_csv(tmp_path / "own.csv")
        model = served_model(run, Whose(f"s{number}"), tmp_path / "own.csv").model
        np.testing.assert_allclose(model.predict_proba(known.rows), known.answers, rtol=0, atol=1e-6)


def test_noise_keeps_scales_at_clients(tmp_path: Path) -> None:
    experiment = asked("npz", tmp_path, "fedavg", privacy={"counts": "noised"})
    run = finished(experiment, tmp_path / "runs")
    with pytest.raises(UserError, match="its own rows"):
        served_model(run, Whose())


def test_rows_that_are_not_needed_are_refused(tmp_path: Path) -> None:
    run = finished(asked("npz", tmp_path, "fedavg"), tmp_path / "runs")
    with pytest.raises(UserError, match="leave --rows out"):
        served_model(run, Whose(), tmp_path / "rows.npz")


def test_whose_model_it_is(tmp_path: Path) -> None:
    experiment = asked("npz", tmp_path, "ifca(groups=2)", rounds=1)
    run = finished(experiment, tmp_path / "runs")
    for wrong, words in (
        (Whose(client="9"), "no client '9'"),
        (Whose(group=2), "no group 2: its groups are 0 to 1"),
    ):
        with pytest.raises(UserError, match=words):
            served_model(run, wrong)
    group = run.group["0"]
    found = served_model(run, Whose(group=group))
    assert found.clients == tuple(n for n, own in enumerate(run.group.values()) if own == group)
    rows = raw_rows(experiment)[:5]
    mine = served_model(run, Whose(client="0")).model.predict_proba(rows)
    assert np.array_equal(found.model.predict_proba(rows), mine)
    other = served_model(run, Whose(group=1 - group)).model.predict_proba(rows)
    assert not np.allclose(other, mine)


def test_who_chose_after_the_last_round_is_served_by_its_choice(tmp_path: Path) -> None:
    """Only one client trained; the others were asked when the models were evaluated."""
    experiment = asked("npz", tmp_path, "ifca(groups=3)", cohort=1, rounds=1)
    same_answers(experiment, tmp_path)
    run = FinishedRun.read(next(tmp_path.glob("runs/*/ifca*")))
    before = checkpoint.load(run.directory)[0]["grouping/group"].tolist()
    assert before != list(run.group.values())


def test_a_group_s_model_is_the_one_that_serves(tmp_path: Path) -> None:
    """FedDyn trains another one than it serves."""
    experiment = asked("npz", tmp_path, "feddyn")
    model = served_model(finished(experiment, tmp_path / "runs"), Whose()).model
    for known in answered_by_run(experiment):
        np.testing.assert_allclose(model.predict_proba(known.rows), known.answers, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "changes", [{"method": "local_only"}, {"method": "fedavg", "local": {"bn": "local"}}]
)
def test_models_of_clients_own_need_the_name_of_one(changes: dict, tmp_path: Path) -> None:
    run = finished(asked("images", tmp_path, rounds=1, model=SMALL, **changes), tmp_path / "runs")
    for whose in (Whose(), Whose(group=0)):
        with pytest.raises(UserError, match="choose one with --client"):
            served_model(run, whose, trust=True)


def test_a_run_of_before_says_what_adds_what_is_missing(tmp_path: Path) -> None:
    experiment = asked("table", tmp_path, "fedavg")
    run = finished(experiment, tmp_path / "runs")
    (run.directory / "preparation.json").unlink()
    with pytest.raises(UserError, match="run --resume"):
        served_model(run, Whose())
    resume(run.directory, Silent())
    assert served_model(run, Whose()).model.preparation.reads == ("age", "dose", "note", "sex")


def test_what_makes_examples_is_for_the_owner_of_a_run_alone(tmp_path: Path) -> None:
    run = finished(asked("texts", tmp_path, "fedavg", rounds=1), tmp_path / "runs")
    assert (run.directory / "preparation.json").stat().st_mode & 0o777 == 0o600
