"""Which node is which client, also after some of them went away and came back."""

import logging
import time
from collections.abc import Callable, Mapping

from fedcohort.flower import wire
from fedcohort.flower.card import Card
from fedcohort.flower.post import Post, Silence
from fedcohort.flower.roster import Roster
from fedcohort.flower.wire import Letter

log = logging.getLogger("fedcohort.flower")

NOWHERE = 0  # the node of a client that was not met yet


class Nodes:
    """Letters to clients by their number."""

    def __init__(self, post: Post, roster: Roster, nodes: list[int], question: Callable[[], Letter]) -> None:
        self.post, self.roster, self.question = post, roster, question
        self.node = dict(enumerate(nodes))
        self.strangers: set[int] = set()  # nodes that are none of the clients

    def ask(self, kind: str, letters: Mapping[int, Letter], number: str = "") -> dict[int, Letter | Silence]:
        """An answer or a silence for every client written to; who is offline is not written to."""
        online = self._online(letters)
        there = {self.node[c]: letter for c, letter in letters.items() if self.node[c] in online}
        replies = self.post.ask(kind, there, number)
        return {c: replies.get(self.node[c], Silence("is offline")) for c in letters}

    def _online(self, letters: Mapping[int, Letter]) -> set[int]:
        """Who is there. When nobody written to is, waits for somebody: nobody would be a wasted round."""
        deadline = time.monotonic() + self.post.timeout
        while True:
            online = self.post.online()
            self._recognise(online)
            if not letters or any(self.node[client] in online for client in letters):
                return online
            if time.monotonic() > deadline:
                return online
            time.sleep(min(3.0, self.post.timeout))

    def _recognise(self, online: set[int]) -> None:
        """A client that came back under another number is known by its name and its sizes."""
        missing = [client for client, node in self.node.items() if node not in online]
        unknown = online - set(self.node.values()) - self.strangers
        if not missing or not unknown:
            return
        splits = self.roster.train, self.roster.validation, self.roster.test
        for node, answer in self.post.ask(wire.PROFILE, dict.fromkeys(unknown, self.question())).items():
            try:
                card = None if isinstance(answer, Silence) else Card.of(node, answer)
            except ValueError:
                card = None
            for client in missing:
                sizes = [int(split.sizes[client]) for split in splits]
                if card is not None and self.roster.clients[client] in card.names and card.sizes == sizes:
                    self.node[client] = node
                    log.info("%s is back", card.name)
                    missing.remove(client)
                    break
            else:
                self.strangers.add(node)
