"""A source, a partition and a network of somebody else's, who knows fedcohort.api and nothing more."""

import importlib
from pathlib import Path

import house
import pytest

import fedcohort as fc

FILES = {
    "infirmary": '''"""Rows of wards, apart from each other by semicolons."""

from dataclasses import dataclass

import numpy as np
import torch

from fedcohort.api import (
    DataPath, Dataset, TableFormat, Places, UserError, as_numbers, client_column, encode_labels, label_column,
    nearest, read_table, register,
)


@register
@dataclass(frozen=True)
class Infirmary:
    path: DataPath
    label: str = "ill"

    def load(self, where: Places) -> Dataset:
        frame = read_table(self.path, where, TableFormat(separator=";"))
        if self.label not in frame.columns:
            raise UserError(f"no column '{self.label}'{nearest(self.label, frame.columns)}")
        columns = [as_numbers(frame[name]) for name in ("age", "weight")]
        y, _, classes = encode_labels(label_column(frame, self.label))
        x = torch.tensor(np.stack(columns, 1), dtype=torch.float32)
        owner = client_column(frame, "ward")
        numbers = torch.ones(2, dtype=torch.bool)
        return Dataset(x, y, classes, owner=owner, provenance={"source": "infirmary"}, numbers=numbers)
''',
    "turns": '''"""Examples go round, one after the other."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from fedcohort.api import Partition, Partitioner, at_least, register, rows_by_client


@register
@dataclass(frozen=True)
class Turns(Partitioner):
    clients: Annotated[int, at_least(1)] = 10

    def deal(self, labels: np.ndarray, seed: int, owner: np.ndarray | None) -> Partition:
        return Partition(rows_by_client(np.arange(len(labels)) % self.clients, self.clients))
''',
    "thin": '''"""One narrow layer."""

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from fedcohort.api import Model, at_least, register


@register
@dataclass(frozen=True)
class Thin(Model):
    width: Annotated[int, at_least(1)] = 3

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(shape[0], self.width), nn.ReLU(), nn.Linear(self.width, classes))
''',
}  # fmt: skip


@pytest.fixture
def ward(elsewhere: Path) -> Path:
    """The files, imported, beside a table."""
    for name, text in FILES.items():
        (elsewhere / f"{name}.py").write_text(text)
        names = [module for _, module in house.imported(elsewhere / f"{name}.py") if "fedcohort" in module]
        assert {module.rpartition(".")[0] for module in names} == {"fedcohort.api"}
        importlib.import_module(name)
    rows = [f"{20 + n};{50 + n % 7};{'abc'[n % 3]};{'yes' if n % 2 else 'no'}" for n in range(60)]
    table = elsewhere / "rows.csv"
    table.write_text("\n".join(["age;weight;ward;ill", *rows]))
    return table


def test_they_run_together(ward: Path) -> None:
    data = fc.load("infirmary", path=str(ward))
    assert (len(data), data.classes, len(set(data.owner))) == (60, ("no", "yes"), 3)
    federation = fc.federate(data, fc.partitioner("turns", clients=4))
    assert federation.num_clients == 4
    task = fc.Task.of(federation, "thin", {"width": 5}, local=fc.Local(batch=8), cohort=2)
    assert task.model.num_params == 2 * 5 + 5 + 5 * 2 + 2
    result = fc.run("fedavg", task, rounds=2)
    assert result.metrics["train_loss"] > 0
    assert 0 <= result.metrics["global.accuracy"] <= 1


def test_their_mistakes_are_sentences(ward: Path) -> None:
    with pytest.raises(fc.UserError, match="no column 'il', did you mean 'ill'"):
        fc.load("infirmary", path=str(ward), label="il")
    with pytest.raises(fc.UserError, match="width"):
        fc.Task.of(
            fc.federate(fc.load("infirmary", path=str(ward)), fc.partitioner("turns")), "thin", {"width": 0}
        )
