"""Which node is which client, also after some of them went away and came back."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from fedcohort.data.revealed import Revealed
from fedcohort.flower import messages
from fedcohort.flower.client_info import read_info
from fedcohort.flower.event_log import note
from fedcohort.flower.messages import Payload
from fedcohort.flower.transport import Silence, Transport

NOWHERE = 0  # the node of a client that was not met yet
TRIES = 3  # questions to a node that says nothing sensible of itself


class Nodes:
    """Messages to clients by their number."""

    def __init__(
        self,
        transport: Transport,
        roster: Revealed,
        nodes: list[int],
        question: Callable[[], Payload],
        strangers: Collection[int] = (),
    ) -> None:
        self.transport, self.roster, self.question = transport, roster, question
        self.node = dict(enumerate(nodes))
        self.unanswered: set[int] = set()  # clients that did not answer the last time
        self.newcomers: set[int] = set()  # nodes that were none of the clients when they came
        self.strangers = set(strangers)  # nodes that are known to be none
        self.tries: Counter[int] = Counter()  # questions to nodes whose answer made no sense

    def ask(
        self, kind: str, payloads: Mapping[int, Payload], number: str = ""
    ) -> dict[int, Payload | Silence]:
        """An answer or a silence for every client written to; who is offline is not written to."""
        if not payloads:
            return {}
        online = self._online(payloads)
        there = {self.node[c]: payload for c, payload in payloads.items() if self.node[c] in online}
        replies = self.transport.ask(kind, there, number)
        said = {c: replies.get(self.node[c], Silence("is offline")) for c in payloads}
        for client, reply in said.items():
            if isinstance(reply, Silence):
                self.unanswered |= set() if reply.code else {client}
            elif client in self.unanswered:
                self.unanswered.remove(client)
                note(self.roster.clients[client], "is back")
        return said

    def _online(self, payloads: Mapping[int, Payload]) -> set[int]:
        """Who is there. When nobody written to is, waits for somebody: nobody would be a wasted round."""
        deadline = time.monotonic() + self.transport.timeout
        while True:
            online = self.transport.online()
            self._recognise(online)
            if any(self.node[client] in online for client in payloads):
                return online
            if time.monotonic() > deadline:
                return online
            time.sleep(min(3.0, self.transport.timeout))

    def _recognise(self, online: set[int]) -> None:
        """Finds clients that came back under another number. Who is new is not asked: a run goes on with the
        clients that it began with."""
        missing = [client for client, node in self.node.items() if node not in online]
        unknown = sorted(online - set(self.node.values()) - self.strangers)
        if not missing:
            for node in set(unknown) - self.newcomers:
                note(self.transport.who(node), "came after the run began: it can take part in the next one")
            self.newcomers |= set(unknown)
            return
        asked = [node for node in unknown if not self._is_admitted(node, missing)]
        if asked:
            answers = self.transport.ask(messages.PROFILE, dict.fromkeys(asked, self.question()))
            for node, answer in answers.items():
                self._compare(node, answer, missing)

    def _is_admitted(self, node: int, missing: list[int]) -> bool:
        """Whether it is for the operator to say which client this is, by key or by name, and not for the node
        itself. A run from before keys were written down knows names only."""
        if node not in self.transport.admitted:
            return False
        name, key = self.transport.admitted[node]
        keys = self.roster.keys or [""] * self.roster.num_clients
        same = [c for c in missing if keys[c] == key] or [
            c for c in missing if self.roster.clients[c] == name
        ]
        if same:
            self._seat(node, same[0], missing)
        elif self.roster.keys:
            self._turn_away(node, self.transport.who(node))
        return bool(same or self.roster.keys)

    def _compare(self, node: int, answer: Payload | Silence, missing: list[int]) -> None:
        """Where there are no keys, a client is known by its name and its sizes."""
        info = read_info(self.transport.who(node), node, answer)
        if isinstance(info, Silence):
            self.tries[node] += 1
            if self.tries[node] == TRIES:
                self.strangers.add(node)
                note(self.transport.who(node), f"is left out, it cannot say who it is: {info.why}")
            return
        for client in missing:
            sizes = self.roster.sizes[:, client].tolist()
            free = not self.roster.keys or not self.roster.keys[client]  # nobody talks itself into a key
            if free and self.roster.clients[client] in info.names and info.sizes == sizes:
                self._seat(node, client, missing)
                return
        self._turn_away(node, f"{info.name}, node {node},")

    def _seat(self, node: int, client: int, missing: list[int]) -> None:
        """This node is that client, which no longer is missing."""
        self.unanswered |= set() if self.node[client] == NOWHERE else {client}
        self.node[client] = node
        missing.remove(client)

    def _turn_away(self, node: int, who: str) -> None:
        self.strangers.add(node)
        note(who, "is none of the clients that the run began with: it is not asked")
