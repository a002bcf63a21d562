"""Messages to clients and their answers, whatever happens on the way and whatever is in them."""

import hashlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import NamedTuple, TypeVar

import httpx
from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedcohort.flower import messages
from fedcohort.flower.messages import NonsenseError, Payload
from fedcohort.util.names import safe_name

log = logging.getLogger("fedcohort.flower")

S = TypeVar("S")
T = TypeVar("T")

# Seconds between two looks for answers, longer and longer: many looks cost the server a good part of a core.
FIRST_PAUSE, PAUSE = 0.05, 1.0
GRACE = 5.0  # seconds that a message outlives the wait for its answer
PATIENCE = 2.0  # seconds that one look may hold up the others
OFFLINE, EXPIRED, CRASHED = 5, 3, 8  # of Flower's error codes
WORDS = {OFFLINE: "went offline", EXPIRED: "did not answer in time", CRASHED: "was killed while it worked"}
UNSENT = "announced an answer and did not send it"


class Silence(NamedTuple):
    """No answer, and why in words for the log; ``code`` is the client's own, if it gave one."""

    why: str
    code: str = ""


class Admitted(NamedTuple):
    """As whom the operator admitted a node, and a digest of the key that it proves this with."""

    name: str
    key: str


Look = Future[Payload | Silence | None]


class Transport:
    """Sends messages to nodes, all at once, and waits for their answers."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.grid, self.timeout = grid, timeout
        self.sent = 0  # messages so far
        self.admitted: dict[int, Admitted] = {}  # nodes with a key of their own; none in a simulation

    def online(self) -> set[int]:
        nodes = list(self.grid.get_nodes())
        for node in nodes:
            if node.name:
                key = hashlib.sha256(node.public_key).hexdigest()
                self.admitted[node.node_id] = Admitted(safe_name(node.name), key)
        return {node.node_id for node in nodes}

    def who(self, node: int) -> str:
        """What the log calls a node, whatever it says of itself."""
        return f"{self.admitted[node].name} (node {node})" if node in self.admitted else f"node {node}"

    def ask(
        self, kind: str, payloads: Mapping[int, Payload], number: str = ""
    ) -> dict[int, Payload | Silence]:
        """An answer or a silence for every node written to; ``number`` is the round's, for Flower's log."""
        written: dict[int, ArrayRecord] = {}
        answers: dict[int, Payload | Silence] = {node: Silence("was not there") for node in payloads}
        sent = [
            Message(messages.write(payload, written), node, kind, ttl=self.timeout + GRACE, group_id=number)
            for node, payload in payloads.items()
        ]
        if not sent:
            return answers
        taken = {name for name in self.grid.push_messages(sent) if name}  # not of nodes that are gone
        waiting = {m.metadata.message_id: m.metadata.dst_node_id for m in sent}
        waiting = {name: node for name, node in waiting.items() if name in taken}
        self.sent += len(waiting)
        deadline = time.monotonic() + self.timeout  # from here: pushing large models takes a while
        pause, slow = FIRST_PAUSE, dict[str, Look]()
        while waiting:
            began = time.monotonic()
            for name, node in list(waiting.items()):
                answer = understood(self.who(node), name, lambda name: self._look(name, slow))
                if answer is not None:
                    answers[waiting.pop(name)] = answer
                if time.monotonic() > deadline + GRACE:
                    break
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if waiting:
                time.sleep(min(left, max(pause, time.monotonic() - began)))
                pause = min(2 * pause, PAUSE)
        for name, node in waiting.items():
            answers[node] = Silence(UNSENT if name in slow else WORDS[EXPIRED])
        return answers

    def _look(self, name: str, slow: dict[str, Look]) -> Payload | Silence | None:
        """The answer to the message of this name, if it is there. Who announces one and holds it back would
        keep Flower waiting for minutes: after a moment it waits apart, among the ``slow``."""
        late = name in slow
        look = slow.pop(name) if late else self._begin(name)
        if wait([look], 0 if late else PATIENCE).not_done:
            slow[name] = look
            return None
        answer = look.result()
        return Silence(UNSENT) if late and answer == Silence(WORDS[EXPIRED]) else answer

    def _begin(self, name: str) -> Look:
        """A look in a thread that nothing waits for when the process ends."""
        look: Look = Future()

        def run() -> None:
            try:
                look.set_result(self._pull(name))
            except BaseException as error:
                look.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return look

    def _pull(self, name: str) -> Payload | Silence | None:
        """The answer to the message of this name, if there is one yet. They are fetched one by one: Flower
        loses all that it fetches together with one that it cannot read."""
        for reply in self.grid.pull_messages([name]):
            return _open(reply)
        return None


def understood(who: str, answer: S | Silence, read: Callable[[S], T]) -> T | Silence:
    """What ``read`` makes of an answer. Whatever goes wrong there, foreseen or not, is the fault of who sent
    it and nobody else's loss: the answer is refused."""
    if isinstance(answer, Silence):
        return answer
    try:
        return read(answer)
    except NonsenseError as error:
        return Silence(f"is refused: {error}", messages.UNREADABLE)
    except (ConnectionError, httpx.TransportError):  # the server's own trouble
        raise
    except Exception:
        shown = "".join(c if c.isprintable() or c == "\n" else "?" for c in traceback.format_exc()[-4000:])
        log.error("an answer of %s could not be read:\n%s", who, shown)
        return Silence("is refused: its answer could not be read", messages.UNREADABLE)


def _open(reply: Message) -> Payload | Silence:
    if reply.has_error():
        return Silence(WORDS.get(reply.error.code, f"failed (Flower's error {reply.error.code})"))
    return _unless_refused(messages.read(reply.content))


def enclosed(payload: Payload, name: str) -> Payload | Silence:
    """The answer to a second question, whose facts a message holds under this name."""
    facts = payload.facts.get(name)
    if not isinstance(facts, dict):
        return Silence(f"sent something unreadable: no '{name}'", messages.UNREADABLE)
    return _unless_refused(Payload(facts, payload.tensors))


def _unless_refused(payload: Payload) -> Payload | Silence:
    code = payload.facts.get("code")
    if code is None:
        return payload
    known = code if code in messages.CODES else messages.FAILED  # nothing that a client makes up is printed
    own = known == messages.REFUSED
    return Silence("does not answer that, by its own policy" if own else f"could not do it ({known})", known)
