"""The ServerApp as Flower starts it: an experiment file in, the files of any run out."""

import json
from pathlib import Path

import pytest
import tomli_w
from flwr.app import Context, RecordDict

from fedcohort.flower import messages
from fedcohort.flower.server_app import app
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.recorder import read_table
from fedcohort.runs.stored import FinishedRun
from fedcohort.util.errors import UserError
from support.flower_tiny import CLIENTS, TINY, nodes
from support.inprocess import InProcess


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
    """Six polls, then each evaluation tells the losses of the next round: 6 + 3 orders + 6, then 3 + 6."""
    serve(nodes(tmp_path), experiment=asked(tmp_path, method="fedlecc"), out=str(tmp_path))
    (table,) = tmp_path.glob("asked-001/*/table.csv")
    assert [row.value for row in read_table(table) if row.metric == "messages"] == [15, 9]


@pytest.mark.parametrize(
    ("method", "every", "sent_each"),
    [
        ("fedavg", 1, [12, 6, 6]),  # orders, then evaluations that bring the next orders
        ("scaffold", 3, [6, 6, 12]),
        ("fedentropy", 1, [None, None, None]),
        ("ifca(groups=2)", 1, [24, 24, 24]),  # nobody's order is known before all have chosen a model
    ],
)
def test_who_is_evaluated_gets_its_next_order_in_the_same_message(
    method: str, every: int, sent_each: list[int], tmp_path: Path
) -> None:
    settings = {"method": method, "cohort": CLIENTS, "rounds": 3, "evaluate": {"every": every}}
    grid = nodes(tmp_path)
    serve(grid, experiment=asked(tmp_path, **settings), out=str(tmp_path))
    (table,) = tmp_path.glob("asked-001/*/table.csv")
    sent = [row.value for row in read_table(table) if row.metric == "messages"]
    if method == "fedentropy":
        updates = sum(kind == messages.UPDATE for kind, *_ in grid.seen)
        assert sum(sent) == 12 + 6 + 6 + updates
    else:
        assert sent == sent_each


def test_whoever_watches_is_told_of_each_round(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    serve(nodes(tmp_path), experiment=asked(tmp_path, method="fedavg"), out=str(tmp_path))
    said = capsys.readouterr().out
    assert "round 1 of 2: 3 of 3 clients trained, 9 messages, global accuracy" in said
    assert "all runs are complete" in said
    with pytest.raises(UserError):
        serve(nodes(tmp_path), out=str(tmp_path))
    assert "ERROR :      the run ends here: run_config 'experiment': missing" in capsys.readouterr().out


def test_a_newcomer_is_compared_with_what_clients_told(tmp_path: Path) -> None:
    """'fedcohort assign' on a run whose data are elsewhere."""
    settings = {"method": ["clust_psi_pfl", "fedavg"], "rounds": 1, "cohort": CLIENTS}
    serve(nodes(tmp_path), experiment=asked(tmp_path, **settings), out=str(tmp_path))
    runs = sorted(path.parent for path in tmp_path.glob("asked-001/*/result.json"))
    told, untold = map(FinishedRun.read, runs)
    counts, classes = told.counts()
    assert counts.tolist() == Experiment.of({**TINY, **settings}).federation(0).counts.tolist()
    assert classes == ["0", "1", "2", "3"]
    with pytest.raises(UserError, match="--losses"):
        untold.counts()


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'experiment': missing"):
        serve(nodes(tmp_path), out=str(tmp_path))
    with pytest.raises(UserError, match="no experiment file"):
        serve(nodes(tmp_path), experiment=str(tmp_path / "none.toml"))
    with pytest.raises(UserError, match="no deployment does"):
        serve(nodes(tmp_path), experiment=asked(tmp_path, method="centralised"), out=str(tmp_path))
    with pytest.raises(UserError, match="ask 'fedcohort advise' about a table of their counts"):
        serve(nodes(tmp_path), experiment=asked(tmp_path, method="auto"), out=str(tmp_path))
    with pytest.raises(UserError, match="sent the models of all others"):
        serve(nodes(tmp_path), experiment=asked(tmp_path, evaluate={"everybody": True}), out=str(tmp_path))
