"""A paper with one tiny table."""

from pathlib import Path

import pytest

from fedcohort.runs.replication.folders import Folder, folders
from support import REPOSITORY

EXPERIMENT = (
    (REPOSITORY / "tests" / "tiny.toml").read_text().replace("rounds = 2", "rounds = 4\nseeds = [0, 1, 2]")
)
METHODS = '\n[[method]]\nname = "fedprox"\n\n[[method]]\nname = "fedavg"\n'
SWEEP = "\n[sweep]\npartition.alpha = [0.5, 50.0]\n"
TABLE = """
about = "a tiny table"
also = ["bytes_up"]

[scales.small]
about = "fewer rounds"
set = ["rounds=3"]

[scales.smoke]
set = ["rounds=1", "seeds=[0]"]

[[claims]]
about = "FedAvg beats FedProx"
method = "fedavg"
against = "fedprox"
conditions = "partition.alpha=50.0"
metric = "global.accuracy"
"""
EXPECTED = """\
table,row,column,conditions,method,metric,value,std,unit
I,FedProx,0.5,partition.alpha=0.5,fedprox,global.accuracy,60.0,1.0,%
I,FedAvg,0.5,partition.alpha=0.5,fedavg,global.accuracy,61.0,,%
I,FedProx,50,partition.alpha=50.0,fedprox,global.accuracy,70.0,1.0,%
I,FedAvg,50,partition.alpha=50.0,fedavg,global.accuracy,72.0,1.0,%
I,Another,50,,,,80.0,,%
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    home = tmp_path / "papers" / "tiny" / "table1"
    home.mkdir(parents=True)
    (home / "experiment.toml").write_text(EXPERIMENT + SWEEP + METHODS)
    (home / "table.toml").write_text(TABLE)
    (home / "expected.csv").write_text(EXPECTED)
    (found,) = folders(tmp_path / "papers", "tiny/table1")
    return found
