"""A Flower grid without Flower's processes: real messages, copied as a network would, straight to the app."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fedcohort.flower.client_app import app

FIRST = 1001  # the node of partition 0
Spoil = Callable[[str, int, Message], Message | None]  # (kind, node, reply): what arrives instead


@dataclass
class InProcess(Grid):
    """Nodes with one partition each; ``spoil`` may change or lose what they answer."""

    contexts: dict[int, Context]
    spoil: Spoil = lambda kind, node, reply: reply
    offline: set[int] = field(default_factory=set)
    admitted: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # names and keys, as a SuperLink's
    replies: dict[str, Message] = field(default_factory=dict)
    seen: list[tuple[str, int, Message, Message]] = field(default_factory=list)  # every message and its reply

    @classmethod
    def of(cls, clients: int, **config: Any) -> "InProcess":
        nodes = {FIRST + part: {"partition-id": part, **config} for part in range(clients)}
        return cls({node: Context(1, node, own, RecordDict(), {}) for node, own in nodes.items()})

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...

    def create_message(self, *args: Any, **kwargs: Any) -> Any: ...

    def send_and_receive(self, *args: Any, **kwargs: Any) -> Any: ...

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in reversed(self.contexts) if node not in self.offline]

    def get_nodes(self) -> Iterable[NodeInfo]:
        for node in self.get_node_ids():
            name, key = self.admitted.get(node, (None, b""))
            yield NodeInfo(node_id=node, name=name, public_key=key)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        names = []
        for message in reversed(list(messages)):  # no order is promised
            message.metadata.__dict__["_message_id"] = name = message.object_id
            node = message.metadata.dst_node_id
            if node in self.offline:
                continue
            names.append(name)
            TaskIdentity.node_id = node
            reply = self.answer(message, node)
            TaskIdentity.node_id = 1
            kind = message.metadata.message_type
            self.seen.append((kind, node, message, reply))
            if (arrives := self.spoil(kind, node, carried(reply))) is not None:
                self.replies[name] = arrives
        return names

    def answer(self, message: Message, node: int) -> Message:
        return app(carried(message), self.contexts[node])

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(name) for name in message_ids if name in self.replies]


def carried(message: Message) -> Message:
    """As it arrives at the other end: made anew from bytes."""
    proto = message_to_proto(message)
    return message_from_proto(type(proto).FromString(proto.SerializeToString()))


def failure(reply: Message, code: int) -> Message:
    """The same reply as an error that the SuperLink made up: it does not say whose it is."""
    error = Message(Error(code, "some reason"), reply_to=reply)
    error.metadata.__dict__["_reply_to_message_id"] = reply.metadata.reply_to_message_id
    return error


TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Killed(BaseException):
    """The server's process ends here."""


def killed_after(messages: int, grid: object) -> object:
    count = [0]

    def spoil(kind: str, node: int, reply: Message) -> Message:
        count[0] += 1
        if count[0] == messages:
            raise Killed
        return reply

    grid.spoil = spoil
    return grid
