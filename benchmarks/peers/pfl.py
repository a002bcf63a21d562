"""pfl-research: its simulated backend, in one process or, with ``torchrun``, in several.

Worked around: users are numbered by (round, place in the cohort), because a pfl dataset does not learn in
which round it is drawn, and the order of a client's examples depends on the round.
Under ``torchrun`` the cohort is balanced over the processes by client size, as pfl's own benchmarks do it.
That starts a sampler beside each process, which draws ten thousand users ahead and takes a core for it; the
first timed round waits until it is done, for no long training would notice it.
"""

import itertools
import os
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.measure import Stopwatch, read_arguments, report
from fedcohort.bench import plain_torch
from fedcohort.bench.jobs import Data, load

PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
SETTLING_S = 5.0
FIRST = os.environ.get("RANK", "0") == "0"


class Network(nn.Module):
    """A network with the two functions that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Tensor, y: Tensor, eval: bool = False) -> Tensor:
        return F.cross_entropy(self.network(x), y)

    def metrics(self, x: Tensor, y: Tensor, eval: bool = True) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Timer(TrainingProcessCallback):
    """From one central iteration to the next."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.watch.begin()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        if FIRST:
            self.watch.end()
        if PROCESSES > 1:
            time.sleep(0 if central_iteration else SETTLING_S)
            torch.distributed.barrier()  # nobody starts the next round while the first reads its clocks
        if FIRST:
            self.watch.begin()
        return False, Metrics()


def replay(data: Data) -> FederatedDataset:
    """The stored cohorts, in their order."""
    cohort = data.job.cohort

    def dataset(entry: int) -> Dataset:
        return Dataset(list(plain_torch.examples(data, *divmod(entry, cohort))))

    def one_after_the_other() -> Callable[[], int]:
        return itertools.cycle(range(data.cohorts.size)).__next__

    sizes = {entry: len(data.rows(client)) for entry, client in enumerate(data.cohorts.flat)}
    return FederatedDataset(
        dataset, one_after_the_other(), user_id_to_weight=sizes if PROCESSES > 1 else None
    )


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    data = load(arguments.folder, shared=PROCESSES > 1)
    watch = Stopwatch(root=os.getpid() if PROCESSES == 1 else os.getppid())
    job, network = data.job, Network(plain_torch.first_network(data))
    model = PyTorchModel(
        network,
        lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=job.momentum),
        torch.optim.SGD(network.parameters(), lr=1.0),
    )
    clients = replay(data)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=1 + arguments.rounds,
            evaluation_frequency=10**9,  # never, but for the warm-up
            train_cohort_size=job.cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=job.lr, local_batch_size=job.batch),
        callbacks=[Timer(watch)],
    )
    if FIRST:
        report("pfl", data, watch, plain_torch.accuracy(network.network, data), ["pfl", "torch"])


if __name__ == "__main__":
    main()
