"""Engines by name and device: what is not here is refused, and what nobody tried is said."""

import warnings
from typing import get_args, get_type_hints

import pytest
import torch

from fedcohort.engines import choice
from fedcohort.engines.choice import ENGINES, Means
from fedcohort.engines.pool import PoolEngine
from fedcohort.runs.experiment import Experiment
from fedcohort.testing.tiny import tiny_task
from fedcohort.util.errors import UserError


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_every_engine_can_be_asked_for():
    assert get_args(get_type_hints(Means)["engine"]) == ("auto", *ENGINES)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu():
    assert Means().chosen == Means("cpu").chosen == ("pool", "cpu")
    assert Means(engine="batched").chosen == ("batched", "cpu")
    with pytest.raises(UserError, match=r"run\.device = 'cuda': PyTorch finds no GPU"):
        _ = Means("cuda").chosen
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, kind in ENGINES.items():
            assert "cpu" in kind.tried_on
            Means(engine=name).engine_for(tiny_task())
    assert type(Means().engine_for(tiny_task())) is PoolEngine


@pytest.mark.usefixtures("gpu")
def test_with_a_gpu(monkeypatch):
    assert Means().chosen == Means("cuda").chosen == ("batched", "cuda")
    assert Means("cpu").chosen == ("pool", "cpu")
    assert Means("cpu", "batched").chosen == ("batched", "cpu")
    assert Means(engine="pool").chosen == ("pool", "cpu")  # it was asked for, and knows no GPU
    with pytest.raises(UserError, match=r"run\.engine = 'pool' computes on cpu, not on cuda"):
        _ = Means("cuda", "pool").chosen
    made = choice.EngineKind(lambda task, device: (task, device), ("cpu", "cuda"), ("cpu",))
    monkeypatch.setitem(ENGINES, "batched", made)
    with pytest.warns(RuntimeWarning, match="'batched' runs on cuda, .* never run it.* stay on the CPU"):
        assert Means().engine_for(None) == (None, "cuda")


@pytest.mark.usefixtures("no_gpu")
def test_in_an_experiment_file():
    """Means are kept with a comparison; a run is the same by whatever means."""
    asked = Experiment.of({"method": "fedavg", "run": {"device": "cpu", "engine": "reference"}})
    assert asked.means == Means("cpu", "reference")
    assert Experiment.of(asked.table()).means == asked.means
    assert "run" not in asked.table(asked.methods[0], 0)
    assert "run" not in Experiment.of({"method": "fedavg"}).table()
    with pytest.raises(UserError, match=r"run\.device"):
        Experiment.of({"method": "fedavg", "run": {"device": "gpu"}})
