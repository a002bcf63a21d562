"""Who takes part, as far as the server knows: asked of every client by one message, without any example."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.data.federation import Federation, Split, Told
from fedcohort.errors import UserError
from fedcohort.flower.card import Card, all_classes, ask_cards, named_apart, natural
from fedcohort.flower.post import Post
from fedcohort.flower.wire import Letter
from fedcohort.revealed import Revealed

log = logging.getLogger("fedcohort.flower")


@dataclass(frozen=True)
class Roster(Federation):
    """A federation whose examples are elsewhere: how many each client has is known, and what it told."""

    told: Told = field(default=Told(None, {}))

    @property
    def seen(self) -> Tensor | None:
        return self.told.counts

    def tell(self, method: Method, privacy: Privacy, seed: int) -> Told:
        return self.told

    def pooled(self) -> "Federation":
        raise UserError(
            "centralised moves all data to one place, which no deployment does: remove it from the methods"
        )

    def save(self, path: Path) -> None:
        """For a server that is started again: clients keep their numbers, also those that are not back."""
        Revealed.of(self, *self.told).write(path)

    @classmethod
    def load(cls, path: Path) -> "Roster":
        """The inverse."""
        kept = Revealed.read(path)
        told = Told(kept.counts, dict(kept.summaries))
        return cls.of(kept.sizes, kept.clients, kept.classes, kept.shape, kept.vocabulary, told)

    @classmethod
    def of(
        cls,
        sizes: Tensor,
        clients: Sequence[str],
        classes: Sequence[str],
        shape: Sequence[int],
        vocabulary: int,
        told: Told,
    ) -> "Roster":
        """From ``sizes [3, K]`` of training, validation and test data, and what else clients said."""
        x = torch.zeros(0, *shape, dtype=torch.long if vocabulary else torch.float32)
        nothing = torch.zeros(0, dtype=torch.long)
        offsets = F.pad(sizes.cumsum(1), (1, 0))
        train, validation, test = (Split(x, nothing, nothing, own) for own in offsets)
        names = tuple(classes), tuple(clients)
        return cls(train, validation, test, *names, None, {}, vocabulary, told)


def gather(
    post: Post, letter: Callable[[Sequence[str]], Letter], wanted: int, privacy: Privacy, patience: float
) -> tuple[Roster, list[int], set[int]]:
    """The roster of all nodes that are there once ``wanted`` are, the node of each client, and the nodes that
    do not take part.

    ``letter`` writes the question, given the classes of the federation (none before they are known).
    """
    there = await_nodes(post, wanted, patience)
    cards = ask_cards(post, letter(()), there)
    classes = all_classes(cards)
    apart = {card.node for card in cards if card.classes != classes}
    told = any(card.counts is not None or card.summaries for card in cards)
    if apart and told and privacy.counts != "exact":  # asked twice, clients would have to draw noise twice
        raise UserError(
            "clients name different classes, and privacy.counts is not 'exact': list all of them in "
            "data.classes of the experiment"
        )
    if apart and cards[0].summaries:  # only a client can make its summary of other classes
        known = [card for card in cards if card.node not in apart]
        cards = known + ask_cards(post, letter(classes), apart)
    else:
        cards = [card.among(classes) for card in cards]
    if not cards:
        raise UserError("no client said what data it has: look at the clients' logs")
    cards = sorted(named_apart(cards), key=lambda card: natural(card.name))
    nodes = [card.node for card in cards]
    return roster_of(cards, classes), nodes, there - set(nodes)


def await_nodes(post: Post, wanted: int, patience: float) -> set[int]:
    """The nodes that are there once they are as many as ``wanted``, or all there are after that long."""
    deadline, nodes, told = time.monotonic() + patience, post.online(), -1
    while len(nodes) < wanted and time.monotonic() < deadline:
        if len(nodes) != told:
            told = len(nodes)
            log.info("%d of %d clients are there; waiting for the others", told, wanted)
        time.sleep(min(3.0, patience))
        nodes = post.online()
    if not nodes:
        raise UserError(f"no client connected within {patience:.0f} seconds: start them, then run again")
    if len(nodes) < wanted:
        words = "only %d of %d clients came in %.0f seconds: it goes on with them"
        log.warning(words, len(nodes), wanted, patience)
    return nodes


def roster_of(cards: Sequence[Card], classes: tuple[str, ...]) -> Roster:
    """The federation of these clients; they must hold examples of one kind."""
    first = cards[0]
    for card in cards:
        if (card.shape, card.vocabulary) != (first.shape, first.vocabulary):
            raise UserError(
                f"examples of {card.name} have shape {card.shape}, those of {first.name} {first.shape}: "
                "prepare the data of all clients in the same way"
            )
        if card.classes != classes or card.summaries.keys() != first.summaries.keys():
            raise UserError(f"{card.name} does not use the experiment's classes: look at its log")
    everybody = all(card.counts is not None for card in cards)
    counts = torch.stack([c.counts for c in cards if c.counts is not None]) if everybody else None
    summaries = {name: torch.stack([card.summaries[name] for card in cards]) for name in first.summaries}
    sizes = torch.tensor([card.sizes for card in cards]).t()
    names = [card.name for card in cards]
    return Roster.of(sizes, names, classes, first.shape, first.vocabulary, Told(counts, summaries))
