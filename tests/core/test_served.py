"""The models of a finished run answer as its evaluation says they do."""

import pytest
import torch
from torch import nn

from fedcohort.core.method import Method
from fedcohort.core.profile import Local
from fedcohort.core.served import NOBODY, ServingModels
from fedcohort.core.task import Task
from fedcohort.engines.reference import ReferenceEngine
from fedcohort.runs.run import run
from fedcohort.testing import tiny_task

FEDERATION = tiny_task().data


def normed(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, classes))


def service(text: str, **local: object) -> tuple[ServingModels, Task, dict[str, float]]:
    method = Method.parse(text)
    task = Task.of(FEDERATION, normed, local=Local(lr=0.3, batch=4, **local), cohort=0.5)  # type: ignore[arg-type]
    result = run(method, task, 4)
    own = task.for_method(method)
    return ServingModels.of(method, result.state, own, ReferenceEngine(own)), task, result.metrics


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("fedavg", {}),
        ("fedavg", {"bn": "local"}),
        ("clust_psi_pfl", {}),
        ("ifca(groups=3)", {}),
        ("local_only", {}),
        ("fedconcat(groups=2, rounds=2)", {}),
        ("centralised", {}),
        ("clust_psi_pfl+finetune(epochs=2)", {}),
        ("fedavg+finetune", {"bn": "local"}),
        ("fedavg+finetune", {"bn": "fresh"}),
        ("fedconcat(groups=2, rounds=2)+finetune(layers='last')", {}),
    ],
)
def test_every_client_is_answered_by_the_model_that_serves_it(text, local):
    served, task, metrics = service(text, **local)
    test = task.data.test
    x, y = test.x[test.index], test.y[test.index]
    right = served.probabilities(task.model, x, test.client).argmax(1) == y
    assert right.double().mean().item() == pytest.approx(metrics["global.accuracy"])
    own = "finetune" in text or local
    assert int(served.serves.max()) + 1 == (task.data.num_clients if own else metrics["groups"])


@pytest.mark.parametrize("further", ["", "+finetune"])
def test_nobody_is_answered_by_the_mean_of_all_models(further):
    """As they are before anybody makes them its own."""
    served, task, _ = service("clust_psi_pfl")
    x, nobody = task.data.test.x[:5], torch.full((5,), NOBODY)
    each = [
        served.probabilities(task.model, x, torch.full((5,), client))
        for client in range(task.data.num_clients)
    ]
    size = task.data.sizes[0].double()
    mean = sum(own * n for own, n in zip(each, size, strict=True)) / size.sum()
    assert len(served.models) > 1
    served, task, _ = service(f"clust_psi_pfl{further}")
    assert served.probabilities(task.model, x, nobody).numpy() == pytest.approx(mean.numpy())
