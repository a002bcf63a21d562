"""What a Flower client does. A module of its own, because Ray's workers import it by name."""

from functools import cache
from pathlib import Path

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from fedcohort.bench import plain_torch
from fedcohort.bench.jobs import Data, load


@cache
def prepare(folder: str) -> tuple[Data, nn.Module]:
    """Once per actor: the data, and a network to train in."""
    data = load(Path(folder), shared=True)
    return data, plain_torch.build_network(data.job)


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One client's round."""
    config = message.content["config"]
    data, network = prepare(config["folder"])
    network.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = plain_torch.examples(data, config["round"], config["place"])
    plain_torch.train(network, x, y, data.job)
    answer = {"arrays": ArrayRecord(network.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(answer), reply_to=message)
