"""Letters to clients and their answers, whatever happens on the way."""

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from flwr.app import ArrayRecord, Message
from flwr.serverapp import Grid

from fedcohort.flower import wire
from fedcohort.flower.wire import Letter

log = logging.getLogger("fedcohort.flower")

# Seconds between two looks for answers, longer and longer: many looks cost the server a good part of a core.
FIRST_PAUSE, PAUSE = 0.05, 1.0
GRACE = 5.0  # seconds that a message outlives the wait for its answer
OFFLINE, EXPIRED, CRASHED = 5, 3, 8  # of Flower's error codes
WORDS = {OFFLINE: "went offline", EXPIRED: "did not answer in time", CRASHED: "was killed while it worked"}


class Silence(NamedTuple):
    """No answer, and why in words for the log; ``code`` is the client's own, if it gave one."""

    why: str
    code: str = ""


class Post:
    """Sends letters to nodes, all at once, and waits for their answers."""

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.grid, self.timeout = grid, timeout
        self.sent = 0  # messages so far

    def online(self) -> set[int]:
        return set(self.grid.get_node_ids())

    def ask(self, kind: str, letters: Mapping[int, Letter], number: str = "") -> dict[int, Letter | Silence]:
        """An answer or a silence for every node written to; ``number`` is the round's, for Flower's log."""
        written: dict[int, ArrayRecord] = {}
        answers: dict[int, Letter | Silence] = {node: Silence("was not there") for node in letters}
        messages = [
            Message(wire.write(letter, written), node, kind, ttl=self.timeout + GRACE, group_id=number)
            for node, letter in letters.items()
        ]
        if not messages:
            return answers
        taken = {name for name in self.grid.push_messages(messages) if name}  # not of nodes that are gone
        waiting = {m.metadata.message_id: m.metadata.dst_node_id for m in messages}
        waiting = {name: node for name, node in waiting.items() if name in taken}
        self.sent += len(waiting)
        deadline = time.monotonic() + self.timeout  # from here: pushing large models takes a while
        pause = FIRST_PAUSE
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                # Errors that the server makes up do not say which node they are about: the message does.
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    answers[node] = _open(reply)
            if time.monotonic() > deadline:
                break
            if waiting:
                time.sleep(pause)
                pause = min(2 * pause, PAUSE)
        answers.update(dict.fromkeys(waiting.values(), Silence("did not answer in time")))
        return answers


def _open(reply: Message) -> Letter | Silence:
    if reply.has_error():
        return Silence(WORDS.get(reply.error.code, f"failed (Flower's error {reply.error.code})"))
    try:
        letter = wire.read(reply.content)
    except ValueError as error:
        return Silence(f"sent something unreadable: {error}", wire.UNREADABLE)
    return _unless_refused(letter)


def enclosed(letter: Letter, name: str) -> Letter | Silence:
    """The answer to a second question, whose facts a letter holds under this name."""
    facts = letter.facts.get(name)
    if not isinstance(facts, dict):
        return Silence(f"sent something unreadable: no '{name}'", wire.UNREADABLE)
    return _unless_refused(Letter(facts, letter.tensors))


def _unless_refused(letter: Letter) -> Letter | Silence:
    code = letter.facts.get("code")
    if code is None:
        return letter
    known = code if code in wire.CODES else wire.FAILED  # nothing that a client makes up is printed
    return Silence(f"could not do it ({known})", known)
