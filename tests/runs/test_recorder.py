"""Run directories: what is in them, under which name, and that nothing in them is lost or overwritten."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcohort.cli.progress import Silent
from fedcohort.core.evaluate import Row
from fedcohort.runs import stored
from fedcohort.runs.comparison import compare
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.outcomes.standings import Outcome, rank
from fedcohort.runs.recorder import environment, jsonable, new_directory, read_result, read_table, run_name
from fedcohort.runs.run import final_metrics
from fedcohort.util import checkpoint
from fedcohort.util.errors import UserError

TABLE: dict[str, Any] = {
    "rounds": 12,
    "cohort": 2,
    "data": {"source": "synthetic", "samples": 60, "classes": 3, "features": 4},
    "partition": {"name": "iid", "clients": 4},
    "model": "logistic",
    "method": ["scaffold"],
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    _, (only,) = compare(Experiment.of(TABLE, "tiny"), tmp_path_factory.mktemp("runs"), Silent())
    return only


def test_table_is_long_and_complete(outcome: Outcome) -> None:
    path = outcome.directory / "table.csv"
    assert path.read_text().startswith("round,scope,client,group,metric,value\n")
    rows = read_table(path)
    assert sorted({row.round for row in rows}) == list(range(1, 13))
    assert final_metrics(rows) == pytest.approx(outcome.metrics, nan_ok=True)
    assert sum(row.scope == "cohort" for row in rows) == 12 * 2  # two clients a round
    assert read_result(outcome.directory) == pytest.approx(outcome.metrics, nan_ok=True)


def test_environment_says_with_what_and_on_what(outcome: Outcome) -> None:
    facts = json.loads((outcome.directory / "env.json").read_text())
    assert facts["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert facts["fingerprint"] == Experiment.of(TABLE).federation(0).fingerprint()
    assert set(environment()) <= set(facts)


def test_checkpoint_is_of_the_last_round_and_the_one_before_is_kept(outcome: Outcome) -> None:
    """Twelve rounds, one checkpoint in ten: at 10 and at the end. It knows the table up to what only the end
    of a run tells, so that the run could go on."""
    tensors, facts = checkpoint.load(outcome.directory)
    assert int(tensors["round"]) == 12
    table = (outcome.directory / "table.csv").read_bytes()
    known, ending = table[: facts["table_bytes"]], table[facts["table_bytes"] :].decode().splitlines()
    assert known.endswith(b"\n")
    assert b"\n12,global,,,accuracy," in known
    assert any(line.startswith("12,run,,,clients_per_round,") for line in ending)
    assert all(line.split(",")[1] in ("run", "answers") or line.split(",")[2] for line in ending)
    (outcome.directory / checkpoint.CURRENT).rename(outcome.directory / "aside")
    assert int(checkpoint.load(outcome.directory)[0]["round"]) == 10
    (outcome.directory / "aside").rename(outcome.directory / checkpoint.CURRENT)


def test_new_directories_never_meet(tmp_path: Path) -> None:
    made = [new_directory(tmp_path / "deep" / "runs", "x") for _ in range(3)]
    assert [path.name for path in made] == ["x-001", "x-002", "x-003"]
    assert all(path.is_dir() for path in made)


def test_run_name_says_method_settings_and_seed() -> None:
    table = {"method": [{"name": "fedlecc(a=1)+fedprox(mu=0.1)"}], "seeds": [4]}
    name = run_name(table)
    assert name.startswith("fedlecc+fedprox-")
    assert name.endswith("-s4")
    assert run_name({**table, "rounds": 3}) != name
    long = run_name({"method": [{"name": "+".join(["fedprox"] * 50)}], "seeds": [0]})
    assert len(long) < 120


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=20))
def test_run_names_are_single_path_components(text: str) -> None:
    name = run_name({"method": [{"name": text}], "seeds": [0]})
    assert "/" not in name
    assert "\0" not in name
    assert Path(name).name == name


def test_numbers_survive_the_table_to_the_bit(tmp_path: Path) -> None:
    values = [0.1, 1 / 3, 1e-300, float("inf"), float("nan"), -0.0, 12345678901234567.0]
    rows = [Row(i, "global", 'a,"b"\nc', "0", "loss[ü]", value) for i, value in enumerate(values)]
    path = tmp_path / "table.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([Row._fields, *rows])
    again = read_table(path)
    assert [row[:5] for row in again] == [row[:5] for row in rows]
    assert [repr(row.value) for row in again] == [repr(value) for value in values]


@pytest.mark.parametrize(
    "line", ["1,global,,,accuracy", "x,global,,,accuracy,0.5", "1,global,,,accuracy,high"]
)
def test_damaged_table_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(f"round,scope,client,group,metric,value\n{line}\n")
    with pytest.raises(UserError, match=r"table\.csv is damaged"):
        read_table(path)


def test_json_has_no_nan() -> None:
    text = json.dumps(jsonable({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5}), allow_nan=False)
    assert json.loads(text) == {"a": None, "b": None, "c": None, "d": 0.5}


# Checkpoints -----------------------------------------------------------------------------------------------


def test_checkpoint_round_trip_and_equal_bytes(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 2), "b": torch.tensor(7), "none": torch.zeros(0, 4)}
    facts = {"config": {"rounds": 3, "lr": 0.1}, "name": "ü"}
    seen = set()
    for _ in range(8):
        checkpoint.save(tmp_path, tensors, facts)
        seen.add((tmp_path / checkpoint.CURRENT).read_bytes())
    again, told = checkpoint.load(tmp_path)
    assert told == facts
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[key], tensor) for key, tensor in tensors.items())
    assert [again[key].dtype for key in tensors] == [tensor.dtype for tensor in tensors.values()]
    assert len(seen) == 1
    assert not list(tmp_path.glob("*.tmp"))


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """Whatever byte of the file is changed, the previous checkpoint is used."""
    checkpoint.save(tmp_path, {"a": torch.zeros(3)}, {"number": 1})
    checkpoint.save(tmp_path, {"a": torch.ones(3)}, {"number": 2})
    current = tmp_path / checkpoint.CURRENT
    good = current.read_bytes()
    for position in range(len(good)):
        current.write_bytes(good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :])
        assert checkpoint.load(tmp_path)[1] == {"number": 1}
        assert current.exists()  # who only looks leaves everything as it is
        tensors, facts = checkpoint.load(tmp_path, tidy=True)
        assert facts == {"number": 1}, f"byte {position} of {len(good)}"
        assert torch.equal(tensors["a"], torch.zeros(3))
        assert not current.exists()  # or the next save would keep it in the place of the good one


def test_no_checkpoint(tmp_path: Path) -> None:
    assert not checkpoint.exists(tmp_path)
    with pytest.raises(UserError, match="holds no checkpoint"):
        checkpoint.load(tmp_path)


# Ranking ---------------------------------------------------------------------------------------------------


def test_rank_by_mean_accuracy_unknown_last() -> None:
    runs = [("a", 0, 0.2), ("b", 0, 0.5), ("a", 1, 0.4), ("b", 1, 0.5), ("c", 0, math.nan), ("c", 1, 0.9)]
    outcomes = [Outcome(m, seed, Path(), {"global.accuracy": value}) for m, seed, value in runs]
    standings = rank(outcomes)
    assert [standing.method for standing in standings] == ["b", "a", "c"]
    assert standings[1].seeds == (0, 1)
    assert standings[1].mean["global.accuracy"] == pytest.approx(0.3)
    assert standings[1].std["global.accuracy"] == pytest.approx(0.2 / math.sqrt(2))
    assert math.isnan(standings[2].std["global.accuracy"])


def test_a_table_may_be_large_but_not_endless(tmp_path, monkeypatch):
    """Equal words are kept once; a row too many, or a first line of anything, is damage."""
    head = ",".join(Row._fields)
    data = f"{head}\n" + "1,cohort,north,0,trained,1.0\n" * 3
    rows = stored.parse_table(data.encode(), tmp_path / "table.csv")
    assert [row.value for row in rows] == [1.0] * 3
    assert rows[0].client is rows[2].client
    monkeypatch.setattr(stored, "ROWS", 2)
    with pytest.raises(UserError, match="more than 2 rows"):
        stored.parse_table(data.encode(), tmp_path / "table.csv")
    with pytest.raises(UserError, match="not the header"):
        stored.parse_table(bytes(1000), tmp_path / "table.csv")
