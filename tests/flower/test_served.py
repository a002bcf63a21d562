"""After a deployment: what a client keeps answers as its run does, and so does what the server exports."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedcohort.flower.client_store import last_served
from fedcohort.runs.export.served import Whose, served_model
from fedcohort.runs.stored import FinishedRun
from fedcohort.serving.model import ServedModel, load_model
from fedcohort.util.errors import UserError
from support.flower_tiny import TINY, experiment, through_flower
from support.hospitals import SITES, asked, clients, write_tables
from support.model_runs import Known, answered_by_run

NORMED = "support.networks:normed"


def same(model: ServedModel, known: Known) -> None:
    np.testing.assert_allclose(model.predict_proba(known.rows), known.answers, rtol=0, atol=1e-6)


def kept(out: Path, name: str) -> ServedModel:
    (folder,) = out.glob(f"keep/*/{name}/served")
    return load_model(folder, allow=[NORMED])


def run_in(out: Path) -> FinishedRun:
    (table,) = out.glob("experiment-*/*/result.json")
    return FinishedRun.read(table.parent)


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ("fedavg", NORMED),
        ("ifca(groups=2)", TINY["model"]),
        ("local_only", TINY["model"]),
        ("fedsoft(groups=2)", NORMED),
        ("fedconcat(groups=2, rounds=1)", TINY["model"]),
        ("fedavg+finetune", NORMED),
        ("ifca(groups=2)+scaffold+finetune(lr=0.3)", TINY["model"]),
        ("fedsoft(groups=2)+finetune(layers='last')", NORMED),
    ],
)
def test_a_client_keeps_the_model_that_serves_it(method: str, model: object, tmp_path: Path) -> None:
    local = {**TINY["local"], "bn": "local"}
    table = {"rounds": 2, "model": model, "local": local, "privacy": {"counts": "exact"}}
    deployed = experiment(method, **table)
    through_flower(deployed, tmp_path)
    for number, known in enumerate(answered_by_run(deployed)):
        same(kept(tmp_path, f"client_{number}"), known)
    files = list(tmp_path.glob("keep/*/*/served/*"))
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}  # words of its rows are in it


@pytest.mark.parametrize(
    ("scale", "missing"), [("federated", "mean"), ("client", "mean"), ("none", "mean"), ("client", "median")]
)
def test_tables_are_read_and_scaled_as_at_the_client(scale: str, missing: str, tmp_path: Path) -> None:
    """The server never saw a column: rows of who uses its model tell it."""
    data = {"scale": scale, "missing": missing}
    wanted = asked(write_tables(tmp_path), data=data, local={"lr": 1e-4, "batch": 8})
    through_flower(wanted, tmp_path, clients(tmp_path, tmp_path, dict.fromkeys(SITES, "exact")))
    run = run_in(tmp_path)
    for name, known in zip(SITES, answered_by_run(wanted), strict=True):
        same(kept(tmp_path, name), known)
        known.rows.drop("@file").write_csv(tmp_path / "own.csv")
        same(served_model(run, Whose(), tmp_path / "own.csv").model, known)
    if scale == "federated":  # the numbers behind the columns are known, their names are not
        assert served_model(run, Whose()).model.preparation.kind == "arrays"


def test_models_of_clients_own_are_not_at_the_server(tmp_path: Path) -> None:
    through_flower(experiment("local_only", rounds=1), tmp_path)
    with pytest.raises(UserError, match="each exports its own"):
        served_model(run_in(tmp_path), Whose("0"))


def test_a_client_s_own_model_is_at_the_client_and_the_common_one_at_the_server(tmp_path: Path) -> None:
    asked = experiment("fedavg+finetune", rounds=1)
    through_flower(asked, tmp_path)
    run = run_in(tmp_path)
    with pytest.raises(UserError, match="each exports its own"):
        served_model(run, Whose("0"))
    with pytest.raises(UserError, match="--group 0 or --newcomer"):
        served_model(run, Whose())
    common, own = served_model(run, Whose(group=0)).model, kept(tmp_path, "client_0")
    assert common.serves == "all 6 clients, before its clients train it further"
    rows = answered_by_run(experiment("fedavg", rounds=1))[0]
    same(common, rows)
    assert not np.allclose(own.predict_proba(rows.rows), rows.answers, atol=1e-3)


def test_a_model_that_cannot_be_kept_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ServedModel, "save", full)
    result, _ = through_flower(experiment("fedavg", rounds=1), tmp_path)
    assert result.metrics["global.accuracy"] > 0


def test_the_last_model_of_a_home(tmp_path: Path) -> None:
    assert last_served(tmp_path) is None
    for run in ("aa", "bb"):
        served = tmp_path / "fedcohort" / run / "north" / "served"
        served.mkdir(parents=True)
        (served / "model.json").touch()
        os.utime(served, (0, len(list(tmp_path.rglob("served")))))
    assert last_served(tmp_path) == tmp_path / "fedcohort/bb/north/served"
