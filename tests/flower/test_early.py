"""What came with an evaluation counts only where the round asks for the same."""

from collections.abc import Mapping

import torch

from fedcohort.core.engine import ModelTrial, Order
from fedcohort.core.method import Method
from fedcohort.core.trust import Trust
from fedcohort.flower.engine import Early, FlowerEngine
from fedcohort.flower.messages import Payload
from fedcohort.flower.transport import Silence
from fedcohort.testing import tiny_task


class Deaf:
    """Nodes that are written to and say nothing."""

    def __init__(self) -> None:
        self.written: list[int] = []

    def ask(self, kind: str, payloads: Mapping[int, Payload], number: str = "") -> dict[int, Silence]:
        self.written += payloads
        return {client: Silence("is offline") for client in payloads}


def test_another_order_is_sent_again() -> None:
    """Client 0 has trained by this order, client 1 by that of another round."""
    task, method, nodes = tiny_task(), Method.parse("fedavg"), Deaf()
    engine = FlowerEngine(nodes, method, task, {}, Trust())  # type: ignore[arg-type]
    down = task.model.init(0)._asdict()
    orders = [Order(client, down, {}, task.budget(client, 3)) for client in (0, 1)]
    for order, number in zip(orders, (3, 2), strict=True):
        facts = engine._order(order, number).facts
        engine._early[order.client] = Early(facts, Silence("trained before"))
    engine.train(method.objective, orders, 3)
    assert nodes.written == [1]


def test_a_loss_of_another_model_is_asked_again() -> None:
    """Client 0 told its loss on this model, client 1 on an older one."""
    task, nodes = tiny_task(), Deaf()
    engine = FlowerEngine(nodes, Method.parse("fedlecc"), task, {}, Trust())  # type: ignore[arg-type]
    older, now = task.model.init(0), task.model.init(0)
    engine._polled = {0: (now.params, 1.5), 1: (older.params, 2.5)}
    losses = engine.losses(ModelTrial([now], torch.tensor([0, 1])))
    assert nodes.written == [1]
    assert losses[0] == 1.5
    assert losses[1].isnan()  # it is asked, and says nothing
