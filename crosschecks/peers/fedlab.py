"""FedLab's algorithms in its standalone pipeline, as published and, where they are wrong, repaired.

Worked around: FedLab imports torchvision, whose compiled operators do not load beside the CPU build of
PyTorch; two operators that nobody calls here are declared first. A "loader" is a client's full batch, once
for each of its steps.
"""

from typing import Any

import torch

LIBRARY = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fedlab.contrib.algorithm import fedavg, feddyn, fednova, fedprox, qfedavg, scaffold
from fedlab.core.standalone import StandalonePipeline
from fedlab.utils import Aggregators
from torch import Tensor

from crosschecks.network import examples, first_network, flat
from crosschecks.problem import LR, Training, read, report

Batches = list[tuple[Tensor, Tensor]]
ALPHA = 0.1  # of FedDyn


class Clients:
    """The dataset that trainers ask for loaders."""

    def __init__(self, problem: Training) -> None:
        self.problem = problem

    def get_dataloader(self, client: int, batch_size: int) -> Batches:
        return [examples(self.problem, client)] * int(self.problem.steps[client])


class Pipeline(StandalonePipeline):
    """FedLab's loop with the stored cohorts; keeps the model after each round."""

    def __init__(self, handler: Any, trainer: Any, problem: Training) -> None:
        super().__init__(handler, trainer)
        self.path: list[list[float]] = []
        handler.sample_clients = lambda: problem.cohorts[handler.round].tolist()

    def evaluate(self) -> None:
        self.path.append(flat(self.handler.model).tolist())


class OneByOne:
    """Lets the pipeline drive a trainer of a single client."""

    def __init__(self, trainer: Any, clients: int) -> None:
        self.trainer, self.num_clients = trainer, clients

    def local_process(self, payload: list[Tensor], clients: list[int]) -> None:
        self.uplink_package = []
        for client in clients:
            self.trainer.local_process(payload, client)
            self.uplink_package.append(self.trainer.uplink_package)


class RepairedServer(feddyn.FedDynServerHandler):
    """FedDyn's h adds up the movements; FedLab subtracts the model once instead of once per client."""

    def global_update(self, buffer: list[list[Tensor]]) -> None:
        models = [element[0] for element in buffer]
        moved = sum(model - self.model_parameters for model in models)
        self.h = self.h - self.alpha / self.num_clients * moved
        self.set_model(Aggregators.fedavg_aggregate(models) - self.h / self.alpha)


class RepairedClient(feddyn.FedDynSerialClientTrainer):
    """FedDyn's extra terms reach the gradient; FedLab computes them from detached weights."""

    @property
    def model_parameters(self) -> Tensor:
        return torch.cat([weight.view(-1) for weight in self._model.parameters()])

    def train(self, id: int, model_parameters: Tensor, train_loader: Batches) -> list[Tensor]:
        (after,) = super().train(id, model_parameters, train_loader)
        self.L[id] = self.L[id].detach()
        return [after.detach()]


def play(problem: Training, server: type, client: type, local: dict | None = None, **option: Any) -> list:
    """The model after each round; ``local`` and ``option`` go to the client's and the server's set-up."""
    handler = server(first_network(problem), *_extent(problem))
    trainer = client(first_network(problem), problem.clients)
    trainer.setup_dataset(Clients(problem))
    trainer.setup_optim(1, 0, LR, **(local or {}))
    if option:
        handler.setup_optim(**option)
    pipeline = Pipeline(handler, trainer, problem)
    pipeline.main()
    return pipeline.path


def play_qfedavg(problem: Training, lr: float | None) -> list:
    """q-FedAvg; its trainer divides by an ``lr`` that it never sets, so it is given here unless None."""
    handler = qfedavg.qFedAvgServerHandler(first_network(problem), *_extent(problem))
    trainer = qfedavg.qFedAvgClientTrainer(first_network(problem))
    trainer.setup_dataset(Clients(problem))
    trainer.setup_optim(1, 0, LR, q=1.0)
    if lr:
        trainer.lr = lr
    pipeline = Pipeline(handler, OneByOne(trainer, problem.clients), problem)
    try:
        pipeline.main()
    except AttributeError as error:
        return [f"{type(error).__name__}: {error}"]
    return pipeline.path


def _extent(problem: Training) -> tuple[int, float]:
    rounds, cohort = problem.cohorts.shape
    return rounds, cohort / problem.clients


def main() -> None:
    problem = Training(**read())
    dyn, nova = {"alpha": ALPHA}, (fednova.FedNovaServerHandler, fednova.FedNovaSerialClientTrainer)
    prox = fedprox.FedProxServerHandler, fedprox.FedProxSerialClientTrainer
    runs = {
        "FedAvg": play(problem, fedavg.FedAvgServerHandler, fedavg.FedAvgSerialClientTrainer),
        "FedProx": play(problem, *prox, {"mu": 0.5}),
        "SCAFFOLD": play(
            problem, scaffold.ScaffoldServerHandler, scaffold.ScaffoldSerialClientTrainer, lr=0.7
        ),
        "FedNova": play(problem, *nova, option="weighted_scale"),
        "FedNova, uniform": play(problem, *nova, option="uniform"),
        "FedDyn": play(problem, feddyn.FedDynServerHandler, feddyn.FedDynSerialClientTrainer, dyn, **dyn),
        "FedDyn, server repaired": play(
            problem, RepairedServer, feddyn.FedDynSerialClientTrainer, dyn, **dyn
        ),
        "FedDyn, both repaired": play(problem, RepairedServer, RepairedClient, dyn, **dyn),
        "qFedAvg": play_qfedavg(problem, None),
        "qFedAvg, lr given": play_qfedavg(problem, LR),
    }
    report(runs, "fedlab", "torch")


if __name__ == "__main__":
    main()
