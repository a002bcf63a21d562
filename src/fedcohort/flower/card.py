"""What a client says of itself when it is asked, and whether an honest one could say it."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fedcohort.core.parts import Memory
from fedcohort.flower import wire
from fedcohort.flower.diary import note
from fedcohort.flower.post import Post, Silence
from fedcohort.flower.wire import Letter


class Card(NamedTuple):
    """What one client said of itself."""

    node: int
    name: str
    sizes: list[int]  # training, validation, test
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    vocabulary: int
    counts: Tensor | None
    summaries: Memory

    @classmethod
    def of(cls, node: int, letter: Letter) -> "Card":
        """ValueError for what no honest client would say."""
        facts, tensors = letter.facts, letter.tensors
        sizes, shape, classes = (_listed(facts.get(key)) for key in ("sizes", "shape", "classes"))
        if not all(type(number) is int and number >= 0 for number in [*sizes, *shape]) or len(sizes) != 3:
            raise ValueError("its sizes are not whole numbers")
        name, vocabulary = facts.get("name"), facts.get("vocabulary")
        if not isinstance(name, str) or not isinstance(vocabulary, int):
            raise ValueError("it does not say who it is")
        counts, summaries = tensors.get("counts", {}).get("counts"), tensors.get("summaries", {})
        if counts is not None and counts.shape != (len(classes),):
            raise ValueError(f"it sent {counts.numel()} label counts for {len(classes)} classes")
        for table in (*summaries.values(), *([] if counts is None else [counts])):
            if not bool(table.isfinite().all()) or bool((table < 0).any()):
                raise ValueError("its label counts are not numbers from 0")
        names = tuple(str(label) for label in classes)
        if len(set(names)) != len(names):
            raise ValueError("it names a class twice")
        return cls(node, name, sizes, names, tuple(shape), vocabulary, counts, summaries)

    @property
    def names(self) -> tuple[str, str]:
        """What the roster may call it: the second where others have the same name."""
        return self.name, f"{self.name} {self.node}"

    def among(self, classes: tuple[str, ...]) -> "Card":
        """The same with everybody's classes: it has no sample of those that it did not name."""
        if self.counts is None:
            return self._replace(classes=classes)
        counts = self.counts.new_zeros(len(classes))
        counts[[classes.index(name) for name in self.classes]] = self.counts
        return self._replace(classes=classes, counts=counts)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("it does not say what its data are like")
    return value


def ask_cards(post: Post, letter: Letter, nodes: set[int]) -> list[Card]:
    """What nodes say of themselves; those that say nothing sensible do not take part."""
    cards = []
    for node, answer in post.ask(wire.PROFILE, dict.fromkeys(sorted(nodes), letter)).items():
        try:
            if isinstance(answer, Silence):
                raise ValueError(answer.why)
            cards.append(Card.of(node, answer))
        except ValueError as error:
            note(_who(node, answer), f"does not take part: {error}")
    return cards


def _who(node: int, answer: Letter | Silence) -> str:
    """Its name, if it gave one that can be printed."""
    name = None if isinstance(answer, Silence) else answer.facts.get("name")
    proper = isinstance(name, str) and name.isprintable() and 0 < len(name) <= 80
    return f"{name} (node {node})" if proper else f"node {node}"


def all_classes(cards: Sequence[Card]) -> tuple[str, ...]:
    """Everybody's classes: in their order where all name the same, else sorted."""
    named = {card.classes for card in cards}
    return named.pop() if len(named) == 1 else tuple(sorted({n for c in named for n in c}, key=natural))


def named_apart(cards: Sequence[Card]) -> list[Card]:
    """Clients of the same name get their node's number behind it."""
    names = [card.name for card in cards]
    return [c._replace(name=c.names[1]) if names.count(c.name) > 1 else c for c in cards]


def natural(name: str) -> tuple[list[Any], str]:
    """Sorts "client 10" behind "client 9"."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts], name
