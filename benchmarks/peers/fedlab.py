"""FedLab: its standalone pipeline with a serial trainer, one client after the other in one process.

Worked around:

- FedLab 1.3.0 averages clients without weights; the handler below weights them by size, with FedLab's own
  aggregator.
- Its trainer keeps one optimiser for all clients, so momentum would leak from one to the next; the trainer
  below makes a fresh one for each.
- It imports torchvision, whose compiled operators do not load beside the CPU build of PyTorch; two
  operators that nobody calls here are declared first, so that the import succeeds.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators, SerializationTool
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measure import Stopwatch, read_arguments, report
from fedcohort.bench import plain_torch
from fedcohort.bench.jobs import Data, load


class Clients:
    """The dataset a trainer asks for loaders: the clients of the current round, by their place in it."""

    def __init__(self, data: Data) -> None:
        self.data, self.number = data, 0

    def get_dataloader(self, place: int, batch_size: int) -> DataLoader:
        x, y = plain_torch.examples(self.data, self.number, place)
        return DataLoader(TensorDataset(x, y), batch_size)


class Trainer(SGDSerialClientTrainer):
    """Local SGD with a fresh optimiser per client; sends the client's size along."""

    def train(self, model_parameters: Tensor, train_loader: DataLoader) -> list[Tensor]:
        job = self.dataset.data.job
        self.optimizer = torch.optim.SGD(self._model.parameters(), lr=job.lr, momentum=job.momentum)
        (after,) = super().train(model_parameters, train_loader)
        return [after, torch.tensor(len(train_loader.dataset))]


class Handler(SyncServerHandler):
    """FedAvg by size, with the stored cohorts."""

    def sample_clients(self) -> list[int]:
        return list(range(self.num_clients_per_round))

    def global_update(self, buffer: list[list[Tensor]]) -> None:
        after, sizes = zip(*buffer, strict=True)
        mean = Aggregators.fedavg_aggregate(list(after), torch.stack(sizes).float())
        SerializationTool.deserialize_model(self._model, mean)


class Pipeline(StandalonePipeline):
    """Times each turn of FedLab's loop; its evaluation hook marks the end."""

    def __init__(self, handler: Handler, trainer: Trainer, watch: Stopwatch) -> None:
        super().__init__(handler, trainer)
        self.watch = watch
        self.watch.begin()

    def evaluate(self) -> None:
        self.watch.end()
        self.trainer.dataset.number += 1
        self.watch.begin()


def main() -> None:
    arguments = read_arguments()
    torch.set_num_threads(arguments.threads)
    data, watch = load(arguments.folder), Stopwatch()
    job = data.job
    handler = Handler(plain_torch.first_network(data), 1 + arguments.rounds, job.cohort / job.clients)
    trainer = Trainer(plain_torch.first_network(data), job.clients)
    trainer.setup_dataset(Clients(data))
    trainer.setup_optim(epochs=1, batch_size=job.batch, lr=job.lr)
    Pipeline(handler, trainer, watch).main()
    report("fedlab", data, watch, plain_torch.accuracy(handler.model, data), ["fedlab", "torch"])


if __name__ == "__main__":
    main()
