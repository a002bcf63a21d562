"""Flower: its simulation runtime on Ray, one CPU for each client, as many at a time as there are CPUs.

Worked around: node numbers are drawn at random, so the server names the client whose turn it is in the
message, and always sends a client to the same node. Examples are sliced from memory-mapped arrays that all
actors share, which is faster than the data loaders of Flower's own tutorials.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path

os.environ |= dict.fromkeys(("FLWR_TELEMETRY_ENABLED", "RAY_USAGE_STATS_ENABLED"), "0")
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.measure import Stopwatch, read_arguments, report
from benchmarks.peers.flower_client import app as client_app
from fedcohort.bench import plain_torch
from fedcohort.bench.jobs import Data, load

CPUS = os.cpu_count() or 1


class Replay(FedAvg):
    """Flower's FedAvg with the stored cohorts, timed."""

    def __init__(self, folder: Path, data: Data, watch: Stopwatch) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.folder, self.data, self.watch = str(folder), data, watch

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.watch.begin()
        nodes, number = sorted(grid.get_node_ids()), server_round - 1
        messages = []
        for place, client in enumerate(self.data.cohorts[number].tolist()):
            order = ConfigRecord({"folder": self.folder, "round": number, "place": place})
            content = RecordDict({"arrays": arrays, "config": order})
            messages.append(Message(content, message_type=MessageType.TRAIN, dst_node_id=nodes[client]))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if len(replies) < self.data.job.cohort or any(reply.has_error() for reply in replies):
            raise RuntimeError(f"round {server_round}: not every client answered")
        result = super().aggregate_train(server_round, replies)
        self.watch.end()
        return result


def main() -> None:
    arguments = read_arguments()
    data, watch = load(arguments.folder, shared=True), Stopwatch()
    network = plain_torch.first_network(data)
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        while len(list(grid.get_node_ids())) < data.job.clients:  # they register one by one
            time.sleep(0.1)
        strategy = Replay(arguments.folder, data, watch)
        result = strategy.start(grid, ArrayRecord(network.state_dict()), num_rounds=1 + arguments.rounds)
        network.load_state_dict(result.arrays.to_torch_state_dict())

    run_simulation(
        server,
        client_app,
        num_supernodes=data.job.clients,
        backend_config={
            "init_args": {"num_cpus": CPUS},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    report("flower", data, watch, plain_torch.accuracy(network, data), ["flwr", "ray", "torch"])


if __name__ == "__main__":
    main()
