"""Which node is which client, also after some of them went away and came back."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from fedcohort.flower import wire
from fedcohort.flower.card import Card
from fedcohort.flower.diary import note
from fedcohort.flower.post import Post, Silence
from fedcohort.flower.roster import Roster
from fedcohort.flower.wire import Letter

NOWHERE = 0  # the node of a client that was not met yet
TRIES = 3  # questions to a node that says nothing sensible of itself


class Nodes:
    """Letters to clients by their number."""

    def __init__(
        self,
        post: Post,
        roster: Roster,
        nodes: list[int],
        question: Callable[[], Letter],
        strangers: Collection[int] = (),
    ) -> None:
        self.post, self.roster, self.question = post, roster, question
        self.node = dict(enumerate(nodes))
        self.away: set[int] = set()  # clients that did not answer the last time
        self.newcomers: set[int] = set()  # nodes that were none of the clients when they came
        self.strangers = set(strangers)  # nodes that said that they are none
        self.tries: Counter[int] = Counter()  # questions to nodes whose answer made no sense

    def ask(self, kind: str, letters: Mapping[int, Letter], number: str = "") -> dict[int, Letter | Silence]:
        """An answer or a silence for every client written to; who is offline is not written to."""
        if not letters:
            return {}
        online = self._online(letters)
        there = {self.node[c]: letter for c, letter in letters.items() if self.node[c] in online}
        replies = self.post.ask(kind, there, number)
        said = {c: replies.get(self.node[c], Silence("is offline")) for c in letters}
        for client, reply in said.items():
            if isinstance(reply, Silence):
                self.away |= set() if reply.code else {client}
            elif client in self.away:
                self.away.remove(client)
                note(self.roster.clients[client], "is back")
        return said

    def _online(self, letters: Mapping[int, Letter]) -> set[int]:
        """Who is there. When nobody written to is, waits for somebody: nobody would be a wasted round."""
        deadline = time.monotonic() + self.post.timeout
        while True:
            online = self.post.online()
            self._recognise(online)
            if any(self.node[client] in online for client in letters):
                return online
            if time.monotonic() > deadline:
                return online
            time.sleep(min(3.0, self.post.timeout))

    def _recognise(self, online: set[int]) -> None:
        """A client that came back under another number is known by its name and its sizes. Who is new is not
        asked: a run goes on with the clients that it began with."""
        missing = [client for client, node in self.node.items() if node not in online]
        unknown = sorted(online - set(self.node.values()) - self.strangers)
        if not missing:
            for node in set(unknown) - self.newcomers:
                note(f"node {node}", "came after the run began: it can take part in the next one")
            self.newcomers |= set(unknown)
        elif unknown:
            answers = self.post.ask(wire.PROFILE, dict.fromkeys(unknown, self.question()))
            for node, answer in answers.items():
                self._compare(node, answer, missing)

    def _compare(self, node: int, answer: Letter | Silence, missing: list[int]) -> None:
        """Whether this node is one of the clients that are missing; if so, that one no longer is."""
        try:
            if isinstance(answer, Silence):
                raise ValueError(answer.why)
            card = Card.of(node, answer)
        except ValueError as error:
            self.tries[node] += 1
            if self.tries[node] == TRIES:
                self.strangers.add(node)
                note(f"node {node}", f"is left out, it cannot say who it is: {error}")
            return
        splits = self.roster.train, self.roster.validation, self.roster.test
        for client in missing:
            sizes = [int(split.sizes[client]) for split in splits]
            if self.roster.clients[client] in card.names and card.sizes == sizes:
                self.away |= set() if self.node[client] == NOWHERE else {client}
                self.node[client] = node
                missing.remove(client)
                return
        self.strangers.add(node)
        note(f"{card.name}, node {node},", "is none of the clients that the run began with: it is not asked")
