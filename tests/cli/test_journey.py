"""From an idea to a table in a paper: one file of skews, learning rates and seeds, killed, resumed, with more
seeds, as LaTeX with tests, as a frame, and the best setting of each method."""

import csv
import io
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fedcohort as fc
from support.cli_calls import Cli

FILE = """
method = ["fedavg", "fedprox", "fedavgm"]
rounds = 4
cohort = 3
seeds = [0, 1]
model = "logistic"

[data]
source = "synthetic"
samples = 200
classes = 3
features = 4

[partition]
name = "dirichlet"
clients = 5
min_size = 8

[evaluate]
on = "test"

[sweep]
partition.alpha = [0.3, 3]
local.lr = [0.02, 0.2]
"""
HOME = "runs/idea-001"


def tables() -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in Path(HOME).glob("*/table.csv")}


@pytest.mark.deploy
def test_from_an_idea_to_a_table(cli: Cli, here: Path) -> None:
    (here / "idea.toml").write_text(FILE)
    command = [sys.executable, "-m", "fedcohort", "run", "idea.toml", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(Path(HOME).glob("*/result.json"))) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    assert process.wait() != 0

    told = json.loads(cli("run", "--resume", HOME, "--json", "--quiet").out)
    assert len(told["runs"]) == 2 * 3 * 2 * 2
    assert {len(line["settings"]) for line in told["leaderboard"]} == {2}
    before = tables()
    more = json.loads(cli("run", "--resume", HOME, "--seeds", "0,1,2", "--json", "--quiet").out)
    assert len(more["runs"]) == 36
    assert {name: text for name, text in tables().items() if name in before} == before

    words = "--metric", "global.accuracy", "--over", "last:2", "--against", "fedavg"
    latex = cli("table", HOME, "--format", "latex", "--cols", "partition.alpha,local.lr", *words).out
    assert r"\toprule" in latex
    assert latex.count(r"$\pm$") + latex.count(r"\pm") >= 12
    assert "Holm" in latex

    frame = fc.results(HOME)
    late = frame[(frame.metric == "global.accuracy") & (frame["round"] > 2)]
    runs = late.groupby(["method", "partition.alpha", "local.lr", "seed"]).value.mean()
    cells = runs.groupby(level=[0, 1, 2]).mean()
    assert len(cells) == 12
    text = cli("table", HOME, "--format", "csv", "--cols", "partition.alpha,local.lr", *words).out
    printed = {tuple(row.values())[:3]: float(row["mean"]) for row in csv.DictReader(io.StringIO(text))}
    assert printed == pytest.approx({tuple(map(str, where)): value for where, value in cells.items()})

    best = runs.groupby(level=[0, 2]).mean().groupby(level=0).idxmax()
    assert dict(best.tolist()) == dict.fromkeys(["fedavg", "fedprox", "fedavgm"], 0.2)
