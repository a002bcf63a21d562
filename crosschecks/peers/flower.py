"""Flower's server strategies, stepped by hand: no simulation, no network.

Flower's own ``configure_train`` tells a strategy the current model; with ``fraction_train=0`` it does so
without asking for clients. Worked around: outside a run, messages ask who is running.
"""

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, QFedAvg
from flwr.supercore.task_identity import TaskIdentity

from crosschecks.problem import LR, Moves, read, report

COMMON = {"fraction_train": 0.0, "fraction_evaluate": 0.0}
ADAPTIVE = {"beta_1": 0.9, "beta_2": 0.99, "tau": 1e-3}


def play(strategy: FedAvg, moves: Moves) -> list[list[float]]:
    """The model after each round."""
    params, path = moves.init.astype(np.float64), []
    for number in range(len(moves.deltas)):
        sent = ArrayRecord({"params": Array(params)})
        strategy.configure_train(number + 1, sent, ConfigRecord(), grid=None)
        replies = [reply(params, moves, number, client) for client in range(len(moves.sizes))]
        arrays, _ = strategy.aggregate_train(number + 1, replies)
        params = arrays["params"].numpy()
        path.append(params.tolist())
    return path


def reply(params: np.ndarray, moves: Moves, number: int, client: int) -> Message:
    metrics = {"num-examples": int(moves.sizes[client]), "train_loss": float(moves.losses[number, client, 0])}
    content = RecordDict(
        {
            "arrays": ArrayRecord({"params": Array(params + moves.deltas[number, client])}),
            "metrics": MetricRecord(metrics),
        }
    )
    return Message(content, dst_node_id=1 + client, message_type=MessageType.TRAIN)


def main() -> None:
    moves = Moves(**read())
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    strategies = {
        "FedAvg": FedAvg(**COMMON),
        "FedAvgM": FedAvgM(**COMMON, server_learning_rate=0.7, server_momentum=0.9),
        "FedAdagrad": FedAdagrad(**COMMON, eta=0.1, tau=1e-3),
        "FedAdam": FedAdam(**COMMON, **ADAPTIVE, eta=0.03),
        "FedYogi": FedYogi(**COMMON, **ADAPTIVE, eta=0.03),
        "QFedAvg": QFedAvg(**COMMON, client_learning_rate=LR, q=1.0),
    }
    report({name: play(strategy, moves) for name, strategy in strategies.items()}, "flwr")


if __name__ == "__main__":
    main()
