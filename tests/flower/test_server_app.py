"""The ServerApp as Flower starts it: an experiment file in, the files of any run out."""

import json
from pathlib import Path

import pytest
import tomli_w
from flwr.app import Context, RecordDict

from fedcohort.errors import UserError
from fedcohort.flower.server_app import app
from fedcohort.record import read_table
from flower.inprocess import InProcess
from flower.tiny import TINY, nodes


def serve(grid: InProcess, **config: object) -> None:
    app(grid, Context(1, 1, {}, RecordDict(), {"round-timeout": 5, **config}))


def asked(folder: Path, **changes: object) -> str:
    path = folder / "asked.toml"
    path.write_text(tomli_w.dumps({**TINY, "rounds": 2, "method": ["fedavg", "fedlecc"], **changes}))
    return str(path)


def test_all_runs_of_an_experiment_file(tmp_path: Path) -> None:
    grid = nodes(tmp_path)
    serve(grid, experiment=asked(tmp_path), out=str(tmp_path / "runs"), resume="")
    home = tmp_path / "runs/asked-001"
    runs = sorted(path.parent for path in home.glob("*/result.json"))
    assert [run.name.partition("-")[0] for run in runs] == ["fedavg", "fedlecc"]
    for run in runs:
        files = {path.name for path in run.iterdir()}
        assert files >= {"config.toml", "env.json", "table.csv", "state.safetensors", "flower.log"}
        assert json.loads((run / "result.json").read_text())["messages"] > 0
    assert "elsewhere" in (home / "report.html").read_text()

    before = len(grid.seen)
    serve(grid, resume=str(home))  # nothing is left to do
    assert len(grid.seen) == before


def test_a_polling_method_needs_one_message_more_than_others_only_in_the_first_round(tmp_path: Path) -> None:
    """Eight polls, then each evaluation tells the losses of the next round: 8 + 4 orders + 8, then 4 + 8."""
    serve(nodes(tmp_path), experiment=asked(tmp_path, method="fedlecc"), out=str(tmp_path))
    (table,) = tmp_path.glob("asked-001/*/table.csv")
    assert [row.value for row in read_table(table) if row.metric == "messages"] == [20, 12]


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'experiment': missing"):
        serve(nodes(tmp_path), out=str(tmp_path))
    with pytest.raises(UserError, match="no experiment file"):
        serve(nodes(tmp_path), experiment=str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="no deployment does"):
        serve(nodes(tmp_path), experiment=asked(tmp_path, method="centralised"), out=str(tmp_path))
