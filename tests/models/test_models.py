"""Networks by name, by function and of any make: their sizes are known, and all of them train."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedcohort.core.profile import Local
from fedcohort.core.task import Task
from fedcohort.data import Federation, federate, load
from fedcohort.data.partition import partitioner
from fedcohort.models import MODELS, flat_model
from fedcohort.models.networks.mlp import MLP
from fedcohort.runs.run import run
from fedcohort.util.errors import UserError


@pytest.mark.parametrize(
    ("name", "shape", "classes", "params"),
    [
        # (784 + 1) * 200 + (200 + 1) * 200 + (200 + 1) * 10
        ("mlp", (1, 28, 28), 10, 199_210),
        # (3*25 + 1) * 6 + (6*25 + 1) * 16 + (400 + 1) * 120 + (120 + 1) * 84 + (84 + 1) * 10
        ("lenet5", (3, 32, 32), 10, 62_006),
        ("lenet5", (1, 28, 28), 10, 61_706),
        ("logistic", (1, 8, 8), 10, 650),
        ("logistic", (13,), 2, 28),
    ],
)
def test_number_of_parameters(name: str, shape: tuple[int, ...], classes: int, params: int) -> None:
    model = flat_model(name, shape, classes)
    assert model.num_params == params
    weights = model.init(0)
    assert model.logits(weights, torch.zeros(3, *shape)).shape == (3, classes)
    assert weights.bytes == 4 * params


def test_widths_of_the_hidden_layers() -> None:
    assert flat_model("mlp", (4,), 3, {"widths": [5, 6]}).num_params == 5 * 5 + 6 * 6 + 7 * 3
    assert (
        flat_model("mlp", (4,), 3, {"widths": []}).num_params == 5 * 3
    )  # no hidden layer: logistic regression


def test_settings_may_be_lists_in_python() -> None:
    given: list[Any] = [[8], (8,)]
    as_list, as_tuple = (flat_model(MLP(widths=widths), (4,), 2) for widths in given)
    assert as_list.num_params == as_tuple.num_params


def test_who_asks_for_the_same_network_gets_another_module() -> None:
    one, other = (flat_model("mlp", (4,), 2) for _ in range(2))
    assert one.module is not other.module
    assert one.ends_with == other.ends_with


def test_a_file_of_many_layers_is_refused_before_they_are_made() -> None:
    """They would need little memory, and minutes."""
    with pytest.raises(UserError, match="mlp: 100,000 hidden layers; give at most 100"):
        flat_model("mlp", (4,), 2, {"widths": [1] * 100_000})


def test_every_model_is_found_by_its_file() -> None:
    assert {"lenet5", "logistic", "mlp"} <= set(MODELS.names())
    assert all(MODELS.get(name).name == name for name in MODELS.names())


def test_lenet_refuses_small_images() -> None:
    with pytest.raises(UserError, match=r"not examples of shape \(1, 8, 8\): use mlp"):
        flat_model("lenet5", (1, 8, 8), 10)


def test_weights_depend_on_the_seed_alone() -> None:
    model = flat_model("mlp", (4,), 3)
    torch.manual_seed(1)
    first = model.init(0).params
    torch.manual_seed(2)
    assert torch.equal(model.init(0).params, first)
    assert not torch.equal(model.init(1).params, first)


def test_module_with_weights_is_an_ordinary_module() -> None:
    model = flat_model(_normed, (4,), 3)
    weights, x = model.init(0), torch.randn(5, 4)
    assert torch.equal(model.module_with(weights)(x), model.logits(weights, x))


# Users' own ------------------------------------------------------------------------------------------------


def _normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes))


def _dropping(classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, classes))


class _Attention(nn.Module):
    """Nothing like a stack of layers; one parameter serves twice."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen, _ = self.mix(x[:, None], x[:, None], x[:, None])
        return self.head(seen[:, 0]) + self.head(x)


@pytest.fixture
def federation() -> Federation:
    data = load("synthetic", samples=120, classes=3, features=4)
    return federate(data, partitioner("dirichlet", clients=4, alpha=0.5, min_size=4), seed=0)


@pytest.mark.parametrize("make", [_normed, _dropping, _Attention, lambda: nn.Linear(4, 3)])
def test_any_module_trains(make: Any, federation: Federation) -> None:
    task = Task.of(federation, make, cohort=4, local=Local(batch=5))
    results = [run("scaffold", task, rounds=2) for _ in range(2)]
    first, second = (result.state.groups[0].weights for result in results)
    assert first.params.isfinite().all()
    assert not torch.equal(first.params, task.model.init(0).params)
    assert torch.equal(first.params, second.params)
    assert torch.equal(first.buffers, second.buffers)


def test_running_statistics_travel_and_stay_positive(federation: Federation) -> None:
    """BatchNorm keeps a mean, a variance and a count per layer: 6 + 6 + 1 numbers."""
    task = Task.of(federation, _normed, cohort=4, local=Local(batch=5))
    assert task.model.num_buffers == 13
    buffers = run("fedavgm(beta=0.9)", task, rounds=2).state.groups[0].weights.buffers
    mean, variance, count = buffers.split([6, 6, 1])
    assert (variance > 0).all()
    assert not torch.equal(mean, torch.zeros(6))
    assert count == 2 * max(-(-int(size) // 5) for size in federation.train.sizes)  # batches of the busiest


def test_module_function_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in the working directory, given the shape, the classes and its own settings."""
    (tmp_path / "fedcohort_test_networks.py").write_text(
        "from torch import nn\n"
        "def deep(shape, classes, width=3):\n"
        "    return nn.Sequential(nn.Linear(shape[0], width), nn.Linear(width, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [])
    model = flat_model("fedcohort_test_networks:deep", (4,), 2, {"width": 7})
    assert model.num_params == 5 * 7 + 8 * 2


def test_module_that_does_not_fit_is_refused_before_training() -> None:
    with pytest.raises(UserError, match=r"answers two examples with shape \(2, 5\), but \(2, 3\) is needed"):
        flat_model(lambda: nn.Linear(4, 5), (4,), 3)
    with pytest.raises(UserError, match="fails on examples of shape"):
        flat_model(lambda: nn.Linear(9, 3), (4,), 3)
    with pytest.raises(UserError, match="unexpected keyword argument 'depth'"):
        flat_model(_dropping, (4,), 3, {"depth": 2})
