"""pfl-research's algorithms, in its simulated backend.

A pfl dataset does not learn in which round it is drawn, so cohorts are dealt one client after the other.

SCAFFOLD also runs repaired. pfl's control variates are *minus* the gradients that the paper's are, because
``get_model_difference`` is after - before; :func:`swapped` gives them to the local steps the other way
round, which cancels the sign. With option I every client's variate is one and the same buffer, which the
next client overwrites; :class:`Copies` keeps a copy of each.
"""

import copy
import itertools
from typing import Any
from unittest.mock import patch

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.base import FederatedAlgorithm, NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.fedprox import FedProx, FedProxParams
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.internal.bridge.pytorch.scaffold import PyTorchSCAFFOLDBridge
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.pfl import Network
from crosschecks.network import examples, first_network, flat
from crosschecks.problem import LR, Training, read, report


class Path(TrainingProcessCallback):
    """Keeps the model after each round."""

    def __init__(self) -> None:
        self.models: list[list[float]] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.models.append(flat(model.pytorch_model).tolist())
        return False, Metrics()


def clients(problem: Training) -> FederatedDataset:
    """The stored cohorts, in their order."""
    order = itertools.cycle(problem.cohorts.flatten().tolist())
    return FederatedDataset(
        lambda client: Dataset(list(examples(problem, client)), user_id=str(client)), order.__next__
    )


def play(
    problem: Training,
    algorithm: FederatedAlgorithm,
    params: type[NNAlgorithmParams] = NNAlgorithmParams,
    server: dict[str, Any] | None = None,
    weighting: type = WeightByDatapoints,
    **extra: Any,
) -> list[list[float]]:
    """The model after each round; ``server`` are options of the server's SGD."""
    network, path, data = Network(first_network(problem)), Path(), clients(problem)
    model = PyTorchModel(
        network,
        lambda weights, lr: torch.optim.SGD(weights, lr=lr),
        torch.optim.SGD(network.parameters(), **(server or {"lr": 1.0})),
    )
    rounds, cohort = problem.cohorts.shape
    algorithm.run(
        params(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=cohort,
            val_cohort_size=0,
            **extra,
        ),
        SimulatedBackend(data, data, postprocessors=[weighting()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=int(problem.steps[0]), local_learning_rate=LR, local_batch_size=None
        ),
        callbacks=[path],
    )
    return path.models


class Copies(InMemoryUserStateStorage):
    """A client's state that nobody else can change."""

    def save_state(self, state: Any, user_id: str, key: str | None = None) -> None:
        super().save_state(copy.deepcopy(state), user_id, key)


def scaffold(problem: Training, option: str, storage: type = InMemoryUserStateStorage) -> list[list[float]]:
    return play(
        problem,
        SCAFFOLD(),
        SCAFFOLDParams,
        weighting=WeightByUser,
        population=problem.clients,
        use_gradient_as_control_variate=option == "I",
        user_state_storage=storage(),
    )


def swapped(problem: Training, option: str, storage: type = InMemoryUserStateStorage) -> list[list[float]]:
    """SCAFFOLD whose local steps take the client's variate for the server's and the other way round."""
    as_it_is = PyTorchSCAFFOLDBridge.do_control_variate_sgd

    def swap(*given: Any, local_c: Any, server_c: Any) -> None:
        as_it_is(*given, local_c=server_c, server_c=local_c)

    with patch.object(PyTorchSCAFFOLDBridge, "do_control_variate_sgd", staticmethod(swap)):
        return scaffold(problem, option, storage)


def main() -> None:
    problem = Training(**read())
    momentum = {"lr": 0.7, "momentum": 0.9}
    runs = {
        "FederatedAveraging": play(problem, FederatedAveraging()),
        "momentum": play(problem, FederatedAveraging(), server=momentum),
        "nesterov": play(problem, FederatedAveraging(), server={**momentum, "nesterov": True}),
        "FedProx": play(problem, FedProx(), FedProxParams, mu=0.5),
        "SCAFFOLD II": scaffold(problem, "II"),
        "SCAFFOLD II, swapped": swapped(problem, "II"),
        "SCAFFOLD I": scaffold(problem, "I"),
        "SCAFFOLD I, swapped": swapped(problem, "I"),
        "SCAFFOLD I, swapped, copies": swapped(problem, "I", Copies),
    }
    report(runs, "pfl", "torch")


if __name__ == "__main__":
    main()
