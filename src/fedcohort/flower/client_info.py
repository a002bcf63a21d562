"""What a client says of itself when it is asked, and whether an honest one could say it."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedcohort.core.records import Memory
from fedcohort.data.scaling import Moments
from fedcohort.flower import messages
from fedcohort.flower.event_log import note
from fedcohort.flower.messages import NonsenseError, Payload
from fedcohort.flower.transport import Admitted, Silence, Transport, understood
from fedcohort.util.names import safe_name

# The largest that a client may say of its data.
SAMPLES = 10**12
SIDE, SIDES = 2**31, messages.SIDES  # of an example
CLASSES, NAME = 10_000, 200  # how many, and characters of a name
LARGEST = 1e30  # of a mean, and of the root of a spread
TOLERANCE = 1e-6  # relative, of sums of counts


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
        facts, tensors = payload.facts, payload.tensors
        sizes, shape = _whole(facts.get("sizes"), SAMPLES), _whole(facts.get("shape"), SIDE)
        (vocabulary,) = _whole([facts.get("vocabulary")], SIDE)
        name = admitted.name if admitted else _name(facts.get("name"))
        if len(sizes) != 3 or len(shape) > SIDES:
            raise NonsenseError("it does not say what its data are like")
        classes = _classes(facts.get("classes"))
        counts = tensors.get("counts", {}).get("counts")
        if counts is not None:
            _check_labels(counts, len(classes), sizes[0])
            counts = _counted(counts, sizes[0])
        summaries = {name: _counted(table, sizes[0]) for name, table in tensors.get("summaries", {}).items()}
        own = tensors.get("moments")
        moments = _moments(own, sizes[0], shape) if own else None
        key = admitted.key if admitted else ""
        told = counts, summaries, moments, own == {}
        return cls(node, name, sizes, classes, tuple(shape), vocabulary, *told, key)

    @property
    def kind(self) -> tuple[tuple[int, ...], int]:
        """What examples it has: all clients must have the same."""
        return self.shape, self.vocabulary

    @property
    def names(self) -> tuple[str, str]:
        """What the roster may call it: the second where others have the same name."""
        return self.name, f"{self.name} {self.node}"


def _whole(value: Any, most: int) -> list[int]:
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each <= most for each in value):
        raise NonsenseError("its sizes are not whole numbers")
    return value


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


def _counted(table: Tensor, size: int) -> Tensor:
    """A table in which each of ``size`` samples weighs 1 in all."""
    most = size * (1 + TOLERANCE)
    if not bool(((table >= 0) & (table <= most)).all()) or float(table.sum()) > most:
        raise NonsenseError(f"it counts more than its {size} training samples")
    return table.double()


def _moments(told: Memory, size: int, shape: Sequence[int]) -> Moments:
    """Of as many columns as examples have, and of no more numbers than there are."""
    columns = {name: value for name, value in told.items() if value.dtype == torch.float64}
    if columns.keys() != set(Moments._fields) or {each.shape for each in columns.values()} != {(*shape[:1],)}:
        raise NonsenseError("the moments of its columns have the wrong shape")
    count, mean, spread = (columns[name] for name in Moments._fields)
    if not bool(
        (torch.stack([mean.abs(), spread.sqrt()]) <= LARGEST).all()
    ):  # nor are they what is no number
        raise NonsenseError("the moments of its columns are no numbers")
    if not bool(((count >= 0) & (count <= size * math.prod(shape[1:]))).all()):
        raise NonsenseError(f"its columns hold more numbers than its {size} training samples have")
    return Moments(count, mean, spread)


def _check_labels(counts: Tensor, classes: int, size: int) -> None:
    if counts.shape != (classes,):
        raise NonsenseError(f"it sent {counts.numel()} label counts for {classes} classes")
    if not abs(float(counts.sum()) - size) <= TOLERANCE * size:
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
