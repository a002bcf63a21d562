"""An experiment in Python does all that the command does, in the same directories."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import fedcohort as fc
from fedcohort.cli.app import main
from fedcohort.data.sources import memory
from fedcohort.python.comparison import complete
from fedcohort.runs import comparison, experiment
from fedcohort.runs.experiment import Experiment as Settings

RNG = np.random.default_rng(0)
X, Y, CLIENTS = RNG.normal(size=(60, 4)), np.arange(60) % 3, np.arange(60) // 10
SMALL = {
    "rounds": 2,
    "cohort": 3,
    "local": fc.Local(lr=0.1, batch=8),
    "model": {"name": "mlp", "widths": [4]},
}


def test_it_writes_what_the_command_writes(tmp_path: Path, capsys):
    data = {"source": "synthetic", "samples": 60, "features": 4}
    asked = fc.Experiment(["fedavg", "fedprox"], data, partition="iid(clients=5)", seeds=[0, 1], **SMALL)
    done = asked.run(tmp_path)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "[4/4] " in shown.err
    assert "fedprox, seed 1: 2 rounds ..." in shown.err
    assert done.directory == tmp_path / "experiment-001"
    assert done.report is not None
    assert done.report.read_text().startswith("<!doctype html>")
    assert [standing.seeds for standing in done.leaderboard] == [(0, 1), (0, 1)]
    with pytest.raises(SystemExit):
        main(["run", str(done.directory / "experiment.toml"), "--out", str(tmp_path), "--quiet"])
    for outcome in done.outcomes:
        again = tmp_path / "experiment-002" / outcome.directory.name
        for name in ("table.csv", "result.json", "config.toml", "state.safetensors"):
            assert (again / name).read_bytes() == (outcome.directory / name).read_bytes()


@pytest.mark.filterwarnings("ignore:.*config.toml is damaged:RuntimeWarning")  # told at once, too
def test_of_runs_that_fail_the_others_are_reported(tmp_path: Path):
    """One can never begin, for its directory holds something else."""
    data = {"source": "synthetic", "samples": 60, "features": 4}
    asked = fc.Experiment(["fedavg", "fedprox"], data, partition="iid(clients=5)", **SMALL)
    plan = comparison.prepare(asked.settings, tmp_path)
    (damaged,) = [job.directory for job in plan.jobs if job.method.title == "fedprox"]
    damaged.mkdir()
    (damaged / "config.toml").write_text("not = [valid")
    with pytest.raises(fc.UserError, match=r"^1 of 2 runs failed; fedprox, seed 0: ") as raised:
        complete(plan, progress=False)
    page = plan.home / "report.html"
    assert str(raised.value).endswith(
        f"(1 other run complete: {page}; 'fedcohort run --resume {plan.home}' tries again)"
    )
    assert "fedavg" in page.read_text()
    assert (plan.home / "table.csv").read_text().count("fedavg") == 1
    (damaged / "config.toml").unlink()
    damaged.rmdir()
    assert len(complete(plan, progress=False).outcomes) == 2


def test_what_is_complete_is_not_repeated(tmp_path: Path, capsys):
    asked = fc.Experiment("fedavg", (X, Y, CLIENTS), **SMALL)
    first = asked.run(tmp_path, progress=False)
    again = asked.run(resume=first.directory, progress=False)
    assert (again.outcomes, again.report) == (first.outcomes, None)
    assert capsys.readouterr().err == ""
    more = fc.Experiment(["fedavg", "fedprox"], (X, Y, CLIENTS), **SMALL)
    longer = more.run(resume=first.directory)
    assert "[1/1] fedprox, seed 0" in capsys.readouterr().err
    assert longer.outcomes[0] == first.outcomes[0]
    assert longer.report is not None
    other = fc.Experiment("fedavg", (X, Y[::-1], CLIENTS), **SMALL)
    with pytest.raises(
        fc.UserError, match=r"data.fingerprint is '\w+' here and '\w+' there.*ask for that, too"
    ):
        other.run(resume=first.directory)


def test_stopped_it_says_how_to_go_on(tmp_path: Path, monkeypatch):
    asked = fc.Experiment("fedavg", (X, Y, CLIENTS), **SMALL)

    def interrupted(*about: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(comparison, "run_job", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            asked.run(tmp_path, progress=False)
    (home,) = tmp_path.iterdir()
    assert f".run(resume={str(home)!r}) goes on" in stopped.value.__notes__[0]
    (outcome,) = asked.run(resume=home, progress=False).outcomes
    assert outcome.metrics == asked.run(tmp_path, progress=False).outcomes[0].metrics


def forget(here: pytest.MonkeyPatch) -> None:
    """This process knows of no data, like another."""
    here.setattr(memory, "KEPT", {})
    for cached in ("_cached_dataset", "_cached_federation"):
        here.setattr(experiment, cached, lambda *about: [])


def test_data_in_memory_are_described_and_stay_there(tmp_path: Path, monkeypatch, capsys):
    asked = fc.Experiment("fedavg", (X, Y, CLIENTS), **SMALL)
    table = asked.settings.table()["data"]
    assert {**table, "fingerprint": ""} == {
        "source": "memory", "fingerprint": "", "examples": 60, "shape": [4], "classes": 3, "clients": 6,
    }  # fmt: skip
    assert asked.federation(0).clients == ("0", "1", "2", "3", "4", "5")  # their own
    done = asked.run(tmp_path, progress=False)
    (done.outcomes[0].directory / "result.json").unlink()
    with monkeypatch.context() as elsewhere:  # another process
        forget(elsewhere)
        with pytest.raises(SystemExit, match="2"):
            main(["run", "--resume", str(done.directory)])
        assert capsys.readouterr().err.startswith(
            "error: the data of this experiment were in the memory of a Python program "
            "(60 examples of shape 4, sha256 "
        )
    assert asked.run(resume=done.directory, progress=False).outcomes == done.outcomes


def test_data_in_memory_go_along_to_another_process(monkeypatch):
    asked = fc.Experiment("fedavg", (X, Y, CLIENTS), **SMALL)
    sent, data = pickle.dumps(Settings.of(asked.settings.table())), asked.federation(0).fingerprint()
    forget(monkeypatch)
    there = pickle.loads(sent)  # noqa: S301  # made above
    assert there.federation(0).fingerprint() == data


def test_settings_are_texts_tables_or_objects():
    objects = fc.Experiment(
        fc.Method.parse("fedprox(mu=0.1)"),
        data={"source": (X, Y), "scale": "client"},
        partition=fc.partitioner("dirichlet", clients=4),
        local=fc.Local(lr=0.1, batch=8),
        model={"name": "mlp", "widths": [4]},
        rounds=2,
        cohort=3,
    )
    texts = fc.Experiment(
        "fedprox(mu=0.1)",
        {"source": fc.load((X, Y)), "scale": "client"},
        partition="dirichlet(clients=4)",
        **SMALL,
    )
    assert objects.settings == texts.settings
    assert objects.settings.scale == "client"
    assert fc.Experiment("fedavg", model=torch.nn.Identity).settings.model == {
        "name": "torch.nn.modules.linear:Identity"
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"round": 3}, "round: unknown, did you mean 'rounds'"),
        ({"model": torch.nn.Linear(4, 3)}, "put the class or function that makes yours into a file"),
        ({"model": lambda: None}, "put the class or function that makes yours into a file"),
        ({"partition": "iid+natural"}, "partition: .* is several"),
        ({"data": 3}, "int cannot be dealt to clients"),
    ],
)
def test_mistakes_are_told_in_a_sentence(settings, words):
    with pytest.raises(fc.UserError, match=words):
        fc.Experiment("fedavg", **settings)
