"""What a client says of itself when it is asked, and whether an honest one could say it."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fedcohort.core.records import Memory
from fedcohort.core.schema import TOLERANCE, count_fields, data_fields, moment_fields, summary_fields
from fedcohort.data.scaling import Moments
from fedcohort.flower import messages
from fedcohort.flower.event_log import note
from fedcohort.flower.fields import read_facts, read_record
from fedcohort.flower.messages import NonsenseError, Payload
from fedcohort.flower.transport import Admitted, Silence, Transport, understood
from fedcohort.util.names import safe_name

CLASSES, NAME = 10_000, 200  # how many a client may have, and characters of a name


class ClientInfo(NamedTuple):
    """What one client said of itself."""

    node: int
    name: str
    sizes: list[int]  # training, validation, test
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    vocabulary: int
    counts: Tensor | None
    summaries: Memory
    moments: Moments | None = None  # of its columns; None: it has nothing to be scaled, or does not tell
    withholds: bool = False  # of these two, the second
    key: str = ""  # a digest of the key that it was admitted with, if it was

    @classmethod
    def of(cls, node: int, payload: Payload, admitted: Admitted | None = None) -> "ClientInfo":
        """NonsenseError for what no honest client would say. The name of one that was ``admitted`` is not its
        own to choose."""
        told, tensors = payload.facts, payload.tensors
        sides = told.get("shape")
        if not isinstance(sides, list) or len(sides) > messages.SIDES:
            raise NonsenseError("it does not say what its data are like")
        facts = read_facts(payload, data_fields(len(sides)))
        (size, *_), shape = facts["sizes"], tuple(facts["shape"])
        name = admitted.name if admitted else _name(told.get("name"))
        classes = _classes(told.get("classes"))
        counts = None
        if "counts" in tensors:
            counts = read_record(payload, "counts", count_fields(len(classes), size))["counts"]
            _check_total(counts, size, all_of_them=True)
        shapes = {name: table.shape for name, table in tensors.get("summaries", {}).items()}
        summaries = read_record(payload, "summaries", summary_fields(shapes, size))
        for table in summaries.values():
            _check_total(table, size)
        own, moments = tensors.get("moments"), None
        if own:
            numbers = moment_fields(shape[:1], size * math.prod(shape[1:]))
            moments = Moments(**read_record(payload, "moments", numbers))
        tables = counts, summaries, moments, own == {}
        key = admitted.key if admitted else ""
        return cls(node, name, facts["sizes"], classes, shape, facts["vocabulary"], *tables, key)

    @property
    def kind(self) -> tuple[tuple[int, ...], int]:
        """What examples it has: all clients must have the same."""
        return self.shape, self.vocabulary

    @property
    def names(self) -> tuple[str, str]:
        """What the roster may call it: the second where others have the same name."""
        return self.name, f"{self.name} {self.node}"


def _name(value: Any) -> str:
    name = safe_name(value) if isinstance(value, str) else ""
    if not name:
        raise NonsenseError("it does not say who it is")
    return name


def _classes(value: Any) -> tuple[str, ...]:
    if (
        not isinstance(value, list)
        or len(value) > CLASSES
        or not all(isinstance(each, str) for each in value)
    ):
        raise NonsenseError("it does not list its classes")
    names = tuple(value)
    if any(len(name) > NAME or re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", name) for name in names):
        raise NonsenseError("the name of a class cannot be printed")
    if len(set(names)) != len(names):
        raise NonsenseError("it names a class twice")
    return names


def _check_total(table: Tensor, size: int, all_of_them: bool = False) -> None:
    """Each of ``size`` samples weighs 1 in all."""
    total, slack = float(table.sum()), TOLERANCE * size
    if total > size + slack:
        raise NonsenseError(f"it counts more than its {size} training samples")
    if all_of_them and total < size - slack:
        raise NonsenseError(f"its label counts do not add up to its {size} training samples")


def ask_infos(transport: Transport, payload: Payload, nodes: set[int]) -> list[ClientInfo]:
    """What nodes say of themselves; those that say nothing sensible do not take part."""
    infos = []
    for node, answer in transport.ask(messages.PROFILE, dict.fromkeys(sorted(nodes), payload)).items():
        info = read_info(transport.who(node), node, answer, transport.admitted.get(node))
        if isinstance(info, Silence):
            note(
                _who(transport, node, answer), f"does not take part: {info.why.removeprefix('is refused: ')}"
            )
        else:
            infos.append(info)
    return infos


def read_info(
    who: str, node: int, answer: Payload | Silence, admitted: Admitted | None = None
) -> ClientInfo | Silence:
    return understood(who, answer, lambda payload: ClientInfo.of(node, payload, admitted))


def _who(transport: Transport, node: int, answer: Payload | Silence) -> str:
    """Its name: the one it was admitted under, or else the one that it gives itself."""
    name = None if isinstance(answer, Silence) else answer.facts.get("name")
    own = safe_name(name) if isinstance(name, str) and node not in transport.admitted else ""
    return f"{own} (node {node})" if own else transport.who(node)


def all_classes(infos: Sequence[ClientInfo]) -> tuple[str, ...]:
    """Everybody's classes: in their order where all name the same, else sorted."""
    named = {info.classes for info in infos}
    if len(named) == 1:
        return named.pop()
    every = {name for classes in named for name in classes}
    whole = all(re.fullmatch("-?[0-9]+", name) for name in every)
    return tuple(sorted(every, key=int if whole else str))  # as one table of all of them would have them


def named_apart(infos: Sequence[ClientInfo]) -> list[ClientInfo]:
    """Clients of the same name get their node's number behind it, until no two are called the same."""
    named = Counter(info.name for info in infos)
    if max(named.values(), default=1) == 1:
        return list(infos)
    return named_apart([c._replace(name=c.names[1]) if named[c.name] > 1 else c for c in infos])
