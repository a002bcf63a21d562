"""Who takes part, as far as the server knows: asked of every client by one message, without any example."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.method import Method
from fedcohort.core.profile import Privacy
from fedcohort.core.trust import Trust, middle
from fedcohort.data.revealed import Revealed
from fedcohort.data.scaling import Moments, Scale, merged
from fedcohort.flower.client_info import ClientInfo, all_classes, ask_infos, named_apart
from fedcohort.flower.event_log import note
from fedcohort.flower.messages import Payload
from fedcohort.flower.transport import Transport
from fedcohort.util.errors import UserError
from fedcohort.util.names import natural

log = logging.getLogger("fedcohort.flower")


class Wanted(NamedTuple):
    """What a run must know of its clients, and how far it believes them."""

    method: Method
    privacy: Privacy
    trust: Trust
    classes: tuple[str, ...] = ()  # all that there are; empty: those that clients name
    scaled: bool = False  # by everybody's moments, as far as they are told

    def tells(self, what: str) -> bool:
        """Whether each client must tell its "counts" or a "summary"."""
        return what in self.method.uses and self.privacy.counts != "withheld"

    def summaries(self, shape: tuple[int, ...], classes: int) -> dict[str, torch.Size]:
        """The shape of each summary: that of no samples at all."""
        x, y = torch.zeros(0, *shape), torch.zeros(0, dtype=torch.long)
        parts = self.method.summarising if self.tells("summary") else []
        return {part.name: part.summarise(x, y, classes).shape for part in parts}


def gather(
    transport: Transport,
    payload: Callable[[Sequence[str]], Payload],
    clients: int,
    wanted: Wanted,
    patience: float,
) -> tuple[Revealed, list[int], set[int]]:
    """The roster of all nodes that are there once they are as many as ``clients``, the node of each client,
    and the nodes that do not take part.

    ``payload`` writes the question, given the classes of the federation (none before they are known).
    """
    there = await_nodes(transport, clients, patience)
    infos = alike(ask_infos(transport, payload(()), there), wanted)
    infos, classes = agreed(infos, wanted)
    apart = {info.node for info in infos if info.classes != classes}
    if apart and (wanted.tells("counts") or wanted.tells("summary")):
        known = [info for info in infos if info.node not in apart]  # only a client can count again
        infos = known + alike(ask_infos(transport, payload(classes), apart), wanted, known)
        infos = _only(infos, lambda info: "" if info.classes == classes else "it names other classes again")
    infos = [info._replace(classes=classes) for info in infos]
    infos = summarised(infos, wanted, len(classes))
    infos = measured(infos, wanted.trust) if wanted.scaled else infos
    if not infos:
        raise UserError("no client can take part; the log says why of each, and the clients' logs say more")
    infos = sorted(named_apart(infos), key=lambda info: natural(info.name))
    nodes = [info.node for info in infos]
    return roster_of(infos, classes, wanted.scaled), nodes, there - set(nodes)


def _only(infos: Sequence[ClientInfo], odd: Callable[[ClientInfo], str]) -> list[ClientInfo]:
    """Those of whom ``odd`` says nothing; what it says of the others is why they do not take part."""
    for info in infos:
        if why := odd(info):
            note(f"{info.name} (node {info.node})", f"does not take part: {why}")
    return [info for info in infos if not odd(info)]


def alike(infos: Sequence[ClientInfo], wanted: Wanted, known: Sequence[ClientInfo] = ()) -> list[ClientInfo]:
    """Those that hold what most of them and of those ``known`` hold, no incredible amount of it, and tell
    what must be known."""
    everybody, ratio = (*known, *infos), wanted.trust.max_size_ratio
    kinds = Counter(info.kind for info in everybody).most_common(2)
    if len(kinds) == 2 and kinds[0][1] == kinds[1][1]:
        one, other = (next(info for info in everybody if info.kind == kind) for kind, _ in kinds)
        raise UserError(
            f"examples of {other.name} have shape {other.shape}, those of {one.name} {one.shape}: "
            "prepare the data of all clients in the same way"
        )
    columns = list(zip(*(info.sizes for info in everybody), strict=True))  # training, validation, test
    if len(everybody) == 2 and any(all(column) and max(column) > ratio * min(column) for column in columns):
        one, other = everybody
        raise UserError(
            f"{one.name} says that it has {one.sizes} samples, {other.name} {other.sizes}: of two nobody can "
            f"say which is odd; trust.max_size_ratio ({ratio:g}) sets how far they may differ"
        )
    most = [ratio * middle(size for size in column if size) for column in columns]

    def odd(info: ClientInfo) -> str:
        if info.kind != kinds[0][0]:
            shape, usual = info.shape, kinds[0][0][0]
            what = f"shape {shape}, those of most clients {usual}" if shape != usual else "other tokens"
            return f"its examples have {what}; prepare the data of all clients in the same way"
        if any(size > limit for size, limit in zip(info.sizes, most, strict=True)):
            return f"it says that it has more than {ratio:g} times the samples of most (trust.max_size_ratio)"
        if wanted.tells("counts") and info.counts is None:
            return f"it tells no label counts, which {wanted.method} needs (--privacy at that client)"
        return ""

    return _only(infos, odd)


def agreed(infos: Sequence[ClientInfo], wanted: Wanted) -> tuple[list[ClientInfo], tuple[str, ...]]:
    """Those whose classes can be the federation's, and these: the listed ones, or all that clients name."""
    if not (listed := set(wanted.classes)):
        return list(infos), all_classes(infos)
    unknown = "it names a class that is not listed in data.classes of the experiment"
    infos = _only(infos, lambda info: "" if listed.issuperset(info.classes) else unknown)
    whole = [info.classes for info in infos if set(info.classes) == listed]
    return infos, whole[0] if whole else all_classes(infos)


def summarised(infos: Sequence[ClientInfo], wanted: Wanted, classes: int) -> list[ClientInfo]:
    """Those whose summaries have the shape that they must have."""
    shapes = wanted.summaries(infos[0].shape, classes) if infos else {}

    def odd(info: ClientInfo) -> str:
        told = {name: table.shape for name, table in info.summaries.items()}
        return "" if told == shapes else "it summarises its data in another way"

    return _only(infos, odd)


def measured(infos: Sequence[ClientInfo], trust: Trust) -> list[ClientInfo]:
    """Those whose numbers are not far larger than those of most, column by column."""
    size = {info.node: _size(info.moments) for info in infos if info.moments is not None}
    columns = zip(*(own.tolist() for own in size.values()), strict=True)
    most = torch.tensor(
        [trust.max_update_ratio * (middle(filter(None, column)) or 1.0) for column in columns]
    )
    words = f"its numbers are more than {trust.max_update_ratio:g} times as large as those of most"

    def odd(info: ClientInfo) -> str:
        told = info.node in size and bool((size[info.node] > most).any())
        return f"{words} (trust.max_update_ratio)" if told else ""

    return _only(infos, odd)


def _size(moments: Moments) -> Tensor:
    """The root of the mean square of each column."""
    return (moments.mean.square() + moments.spread / moments.number.clamp(min=1)).sqrt()


def scale_of(infos: Sequence[ClientInfo]) -> Scale | None:
    """Of all rows of all clients that tell their moments; None if nobody does, and each is left to itself."""
    told = [info.moments for info in infos if info.moments is not None]
    silent = [info.name for info in infos if info.withholds]
    if silent and not told:
        log.warning(
            "no client tells the means of its columns (--privacy exact would), so each scales its numbers by "
            "its own rows: a simulation gives the same numbers with data.scale = 'client'"
        )
    elif silent:
        log.warning(
            "the means of the columns of %s are not told (--privacy exact would), so everybody's numbers are "
            "scaled by those of the others: only data.scale = 'client' gives the numbers of a simulation",
            ", ".join(silent),
        )
    return merged(Moments(*map(torch.stack, zip(*told, strict=True)))) if told else None


def await_nodes(transport: Transport, wanted: int, patience: float) -> set[int]:
    """The nodes that are there once they are as many as ``wanted``, or all there are after that long."""
    deadline, nodes, told = time.monotonic() + patience, transport.online(), -1
    while len(nodes) < wanted and time.monotonic() < deadline:
        if len(nodes) != told:
            told = len(nodes)
            log.info("%d of %d clients are there; waiting for the others", told, wanted)
        time.sleep(min(3.0, patience))
        nodes = transport.online()
    if not nodes:
        raise UserError(f"no client connected within {patience:.0f} seconds: start them, then run again")
    if len(nodes) < wanted:
        words = "only %d of %d clients came in %.0f seconds: it goes on with them"
        log.warning(words, len(nodes), wanted, patience)
    return nodes


def roster_of(infos: Sequence[ClientInfo], classes: tuple[str, ...], scaled: bool = False) -> Revealed:
    """What these clients, who all told the same, revealed."""
    first, names = infos[0], tuple(info.name for info in infos)
    counted = [info.counts for info in infos if info.counts is not None]
    counts = torch.stack(counted).double() if len(counted) == len(infos) else None
    summaries = {
        name: torch.stack([info.summaries[name] for info in infos]).double() for name in first.summaries
    }
    sizes = torch.tensor([info.sizes for info in infos]).t().contiguous()
    keys = tuple(info.key for info in infos) if all(info.key for info in infos) else ()
    scale = scale_of(infos) if scaled else None
    kind = names, classes, first.shape, first.vocabulary
    return Revealed(*kind, sizes, counts, summaries, keys, scale)
