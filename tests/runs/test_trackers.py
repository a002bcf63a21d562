"""Trackers against their real libraries: every number about the federation arrives, and no client's."""

import json
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedcohort.cli.progress import Silent
from fedcohort.core.round.loop import Report
from fedcohort.core.state import State
from fedcohort.runs.comparison import Plan, carry_out, prepare, reopen
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import read_table
from fedcohort.runs.run import Callback
from fedcohort.runs.trackers import TRACKERS, Log, RunInfo, Tracker, Tracking, parse_trackers, read_trackers
from fedcohort.util.errors import UserError

ROUNDS = 13  # the last checkpoint before the end is after round 10


def experiment(tmp_path: Path, track: dict[str, Any], method: str = "fedavg") -> Experiment:
    """Two clients called north and south, of a file whose path is nobody's business."""
    lines = [f"{'north' if k % 2 else 'south'},{k % 5},{k % 7},{k % 3 > 0:d}" for k in range(60)]
    (tmp_path / "private.csv").write_text("\n".join(["site,a,b,label", *lines]))
    data = {"source": "table", "path": str(tmp_path / "private.csv"), "label": "label", "client": "site"}
    table = {"method": [method], "rounds": ROUNDS, "cohort": 2, "model": "logistic", "data": data}
    return Experiment.of({**table, "track": track})


def expected(run: Path) -> dict[str, dict[int, float]]:
    """What each tracker should have been told: scope/metric, round, value."""
    told: dict[str, dict[int, float]] = {}
    for row in read_table(run / "table.csv"):
        if row.overall:
            told.setdefault(f"{row.scope}/{row.metric}", {})[row.round] = row.value
    return told


class Interrupted(Silent, Callback):
    """Ends a run with an error after so many rounds."""

    def __init__(self, after: int) -> None:
        self.after = after

    def begin(self, method: str, seed: int, rounds: int) -> Any:
        return self

    def after_round(self, state: State, report: Report, rows: Any) -> bool:
        if state.round == self.after:
            raise InterruptedError
        return False

    def close(self, state: State) -> None:
        pass


def stopped_and_continued(tmp_path: Path, track: dict[str, Any]) -> Path:
    """A run that fails in round 12, and is continued from the checkpoint of round 10, as after a power cut:
    rounds 11 and 12 come again."""
    plan = prepare(experiment(tmp_path, track), tmp_path / "runs")
    with pytest.raises(InterruptedError):
        carry_out(plan, Interrupted(after=12))
    (job,) = plan.jobs
    (job.directory / "state.previous.safetensors").replace(job.directory / "state.safetensors")
    carry_out(reopen(plan.home, trust=True), Silent())
    return job.directory


def test_tensorboard_has_every_number_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = stopped_and_continued(tmp_path, {"tensorboard": True})
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    told = {key: {e.step: e.value for e in events.Scalars(key)} for key in events.Tags()["scalars"]}
    wanted = expected(run)
    assert told.keys() == wanted.keys()
    for key, values in wanted.items():
        assert told[key] == pytest.approx(values, rel=1e-6, nan_ok=True), key
        assert len(events.Scalars(key)) == len(values), f"{key} was written twice"


@pytest.mark.deploy
def test_mlflow_has_every_number_once_and_the_settings(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    run = stopped_and_continued(tmp_path, {"mlflow": {"experiment": "hearts"}})
    client = MlflowClient(f"sqlite:///{tmp_path / 'runs' / 'mlflow.db'}")
    known = client.get_experiment_by_name("hearts")
    (kept,) = client.search_runs([known.experiment_id])  # one, although it was started twice
    assert kept.info.status == "FINISHED"
    assert kept.info.run_name == "fedavg, seed 0"
    assert kept.data.params["local.lr"] == "0.05"
    assert kept.data.params["method"] == "fedavg"
    for key, values in expected(run).items():
        name = key.replace("[", ":").replace("]", "")
        history = client.get_metric_history(kept.info.run_id, name)
        assert {m.step: m.value for m in history} == pytest.approx(values, nan_ok=True), key
        assert len(history) == len(values), f"{key} was written twice"
    private = json.dumps([kept.data.params, list(kept.data.metrics), kept.data.tags])
    assert str(tmp_path) not in private
    assert "north" not in private


@pytest.mark.deploy
def test_wandb_keeps_every_number_offline(tmp_path: Path) -> None:
    """Read back from W&B's own log; in a process of its own, since W&B changes the one it runs in."""
    experiment(tmp_path, {})
    (tmp_path / "e.toml").write_text(
        f"rounds = 3\ncohort = 2\nmodel = 'logistic'\nmethod = ['fedavg', 'fairavg']\n"
        f"[data]\nsource = 'table'\npath = '{tmp_path}/private.csv'\nlabel = 'label'\nclient = 'site'\n"
    )
    program = [sys.executable, "-m", "fedcohort", "run", "e.toml", "--quiet", "--track", "wandb"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "wandb" not in done.stdout + done.stderr
    for run in (tmp_path / "runs/e-001").glob("*-s0"):  # both went on at the same time
        history, everything = read_wandb(next(run.glob("wandb/offline-run-*/run-*.wandb")))
        for key, values in expected(run).items():
            assert {n: row[key] for n, row in history.items() if key in row} == pytest.approx(values), key
        assert b"north" not in everything
        assert str(tmp_path / "private.csv").encode() not in everything


def read_wandb(path: Path) -> tuple[dict[int, dict[str, float]], bytes]:
    """The history in a W&B log by step, and the log's bytes."""
    from wandb.proto import wandb_internal_pb2

    history = dict[int, dict[str, float]]()
    for data in log_records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
            history[record.history.step.num] = {key: json.loads(value) for key, value in items.items()}
    return history, path.read_bytes()


def log_records(log: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log with W&B's seven bytes in front.

    Blocks of 32 KiB hold fragments: checksum (4 bytes), length (2), kind (1: whole, 2: first, 3: middle,
    4: last). Fewer than seven bytes at a block's end are padding.
    """
    at, parts = 7, b""
    while at + 7 <= len(log):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", log, at)
        parts += log[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield parts
            parts = b""


def test_a_run_is_the_same_whoever_is_told_of_it(tmp_path: Path) -> None:
    """Trackers are no setting of a run: its name, its files and its bytes do not know of them."""
    plans: list[Plan] = []
    for track in ({}, {"tensorboard": True}):
        plans.append(prepare(experiment(tmp_path, track), tmp_path / "runs"))
        carry_out(plans[-1], Silent())
    alone, told = (plan.jobs[0].directory for plan in plans)
    assert alone.name == told.name
    for name in ("config.toml", "table.csv", "state.safetensors", "result.json"):
        assert (alone / name).read_bytes() == (told / name).read_bytes()
    assert {path.name for path in told.iterdir()} - {path.name for path in alone.iterdir()} == {"tensorboard"}


def test_the_comparison_remembers_its_trackers(tmp_path: Path) -> None:
    track = {"tensorboard": True, "wandb": {"project": "hearts"}, "mlflow": False}
    asked = experiment(tmp_path, track)
    plan = prepare(asked, tmp_path / "runs")
    assert reopen(plan.home, trust=True).experiment.trackers == asked.trackers
    assert [tracker.name for tracker in asked.trackers] == ["tensorboard", "wandb"]


def test_the_command_line_adds_and_changes_trackers(tmp_path: Path) -> None:
    asked = experiment(tmp_path, {"wandb": {"project": "a"}, "tensorboard": True})
    more = asked.tracked(["mlflow(experiment='x')", "wandb(project='b')"])
    assert more.trackers == read_trackers(
        {"tensorboard": True, "mlflow": {"experiment": "x"}, "wandb": {"project": "b"}}
    )
    assert asked.tracked([]) is asked
    assert parse_trackers(["tensorboard"]) == {"tensorboard": True}


class Failing(Log):
    """Breaks down in its second round."""

    def write(self, number: int, values: dict[str, float]) -> None:
        if number == 2:
            raise ConnectionError("the server is gone")

    def end(self, complete: bool) -> None:
        raise AssertionError("it was left")


class Broken(Tracker):
    name, library = "broken", "json"

    def start(self, info: RunInfo) -> Log:
        return Failing()


def test_a_run_survives_its_tracker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRACKERS._classes, "broken", Broken)
    asked = experiment(tmp_path, {})
    asked = type(asked)(**{**vars(asked), "trackers": (Broken(),)})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        (outcome,) = carry_out(prepare(asked, tmp_path / "runs"), Silent())
    assert outcome.metrics["cohort"] == 2
    ours = [str(warning.message) for warning in said if "broken" in str(warning.message)]
    assert ours == [
        "the tracker 'broken' is told no more (ConnectionError: the server is gone); the run goes on"
    ]


class Refusing(Broken):
    def start(self, info: RunInfo) -> Log:
        raise ConnectionError("no such server")


def test_a_tracker_that_cannot_start_is_a_mistake(tmp_path: Path) -> None:
    told = RunInfo(tmp_path, "1", "e", "fedavg, seed 0", {}, 3, 0)
    with pytest.raises(UserError, match=r"'broken' cannot be started: ConnectionError: no such server"):
        Tracking(Refusing(), told)


MISTAKES = {
    "unknown tracker 'tensorbord', did you mean 'tensorboard'?": {"tensorbord": True},
    "track.wandb.mode: 'loud' is not 'offline' or 'online'": {"wandb": {"mode": "loud"}},
    "track.mlflow.url: unknown, did you mean 'uri'?": {"mlflow": {"url": "x"}},
    "track.mlflow: write true, or a table with its settings": {"mlflow": 3},
}


@pytest.mark.parametrize("told", MISTAKES)
def test_mistakes_are_one_sentence(told: str) -> None:
    with pytest.raises(UserError) as mistake:
        read_trackers(MISTAKES[told])
    assert str(mistake.value) == told


def test_a_missing_library_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TRACKERS.get("wandb"), "library", "no_such_library")
    with pytest.raises(UserError, match=r"pip install 'fedcohort\[trackers\]'"):
        prepare(experiment(tmp_path, {"wandb": True}), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_no_library_is_imported_before_it_is_used() -> None:
    code = (
        "import sys, fedcohort.runs.experiment, fedcohort.runs.trackers as t;"
        "[t.TRACKERS.get(name)() for name in t.TRACKERS.names()];"
        "print({'mlflow', 'wandb', 'tensorboard'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
