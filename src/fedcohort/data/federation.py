"""The federation: one tensor of examples, and for each client the rows that are its own.

A client is a slice of an index, so ten thousand clients are two long vectors, not ten thousand objects.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedcohort.data.scaling import Moments, Scale
from fedcohort.util.errors import UserError
from fedcohort.util.keyed import generator


@dataclass(frozen=True)
class Split:
    """The training, validation or test rows of all clients, one client after the other."""

    x: Tensor  # [n, ...] float32, or int64 token ids; splits may share this tensor
    y: Tensor  # [n] int64
    index: Tensor  # int64 rows of x
    offsets: Tensor  # int64 [K+1]: client k owns index[offsets[k]:offsets[k+1]]

    @classmethod
    def of(cls, x: Tensor, y: Tensor, rows: Sequence[np.ndarray | Tensor]) -> "Split":
        """A split from one array of row numbers per client."""
        sizes = torch.tensor([0, *(len(client) for client in rows)], dtype=torch.int64)
        parts = [torch.as_tensor(client, dtype=torch.int64) for client in rows]
        index = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
        return cls(x, y, index, sizes.cumsum(0))

    @classmethod
    def owned(cls, x: Tensor, y: Tensor, rows: np.ndarray, client: np.ndarray, clients: int) -> "Split":
        """A split from parallel arrays: row ``rows[j]`` belongs to ``client[j]``."""
        order = np.argsort(client, kind="stable")
        offsets = np.searchsorted(client[order], np.arange(clients + 1))
        return cls(
            x, y, torch.from_numpy(rows[order].astype(np.int64)), torch.from_numpy(offsets.astype(np.int64))
        )

    @property
    def num_clients(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def bounds(self) -> list[int]:
        """``offsets`` as plain numbers: looked at once per client and round."""
        return self.offsets.tolist()

    def rows(self, client: int) -> Tensor:
        """The rows of one client: a view, nothing is copied."""
        return self.index[self.bounds[client] : self.bounds[client + 1]]

    @cached_property
    def sizes(self) -> Tensor:
        """How many examples each client holds, [K]."""
        return self.offsets.diff()

    @cached_property
    def client(self) -> Tensor:
        """The client of each entry of ``index``."""
        return torch.repeat_interleave(torch.arange(self.num_clients), self.sizes)

    def counts(self, num_classes: int) -> Tensor:
        """Label counts, [K, C]."""
        cell = self.client * num_classes + self.y[self.index]
        return torch.bincount(cell, minlength=self.num_clients * num_classes).reshape(-1, num_classes)

    def examples(self, client: int) -> tuple[Tensor, Tensor]:
        """A copy of one client's examples and labels."""
        rows = self.rows(client)
        return self.x[rows], self.y[rows]


@dataclass(frozen=True)
class Federation:
    """Clients with their training, validation and test examples, and the story of how they came about."""

    train: Split
    validation: Split
    test: Split
    classes: tuple[str, ...]
    clients: tuple[str, ...]
    truth: Tensor | None  # the group each client was made in, where the protocol knows it
    provenance: dict[str, Any]
    vocabulary: int = 0  # kinds of tokens; 0: examples are numbers
    iid: Tensor | None = None  # [K] who drew labels like everybody's, where the protocol knows it
    scale: Scale | None = None  # by which the numbers of all clients were changed, if by one
    own_scale: Scale | None = None  # or each client's own, [K, width]
    moments: Moments | None = None  # of each client's training rows before that
    numbers: Tensor | None = None  # [K] of the clients in the larger federation they were taken out of

    @property
    def num_clients(self) -> int:
        return len(self.clients)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @cached_property
    def sizes(self) -> Tensor:
        """[3, K] of training, validation and test data."""
        return torch.stack([split.sizes for split in (self.train, self.validation, self.test)])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.train.x.shape[1:])

    @cached_property
    def counts(self) -> Tensor:
        """Label counts of the training rows, [K, C]: the only ones a method may be told."""
        return self.train.counts(self.num_classes)

    @cached_property
    def unprinted(self) -> str:
        """A digest of the data that no file of a run holds, unlike the fingerprint."""
        return self.fingerprint("noise")

    def fingerprint(self, purpose: str = "") -> str:
        """A sha256, equal for two federations only if each client has the same rows for the same use."""
        return fingerprint((self.train, self.validation, self.test), self.classes, purpose)

    def without_validation(self) -> "Federation":
        """The same, but what is held out for validation is training data, too."""
        train, held = self.train, self.validation
        if not held.sizes.any():
            return self
        x, y, behind = train.x, train.y, 0
        if held.x is not x:
            x, y, behind = torch.cat([x, held.x]), torch.cat([y, held.y]), len(x)
        rows = torch.cat([train.index, held.index + behind]).numpy()
        client = torch.cat([train.client, held.client]).numpy()
        nothing = replace(held, index=held.index[:0], offsets=torch.zeros_like(held.offsets))
        return replace(self, train=Split.owned(x, y, rows, client, self.num_clients), validation=nothing)

    def encoded(self, encode: Callable[[Tensor], Tensor], width: int) -> "Federation":
        """The same, with ``[n, width]`` features in place of examples."""
        known: dict[int, Tensor] = {}  # splits may share their examples

        def of(split: Split) -> Split:
            if id(split.x) not in known:
                known[id(split.x)] = encode(split.x)
            return replace(split, x=known[id(split.x)])

        return replace(self, train=of(self.train), validation=of(self.validation), test=of(self.test))

    def part(self, places: Tensor) -> "Federation":
        """Some of the clients with copies of their data; what they draw at random stays what it was."""

        def only(split: Split) -> Split:
            rows = torch.cat([split.index[:0], *(split.rows(place) for place in places.tolist())])
            offsets = F.pad(split.sizes[places].cumsum(0), (1, 0))
            return Split(split.x[rows], split.y[rows], torch.arange(len(rows)), offsets)

        return replace(
            self,
            train=only(self.train),
            validation=only(self.validation),
            test=only(self.test),
            clients=tuple(self.clients[place] for place in places.tolist()),
            truth=None,
            iid=None,
            own_scale=None,
            moments=None,
            numbers=places if self.numbers is None else self.numbers[places],
        )

    def client(self, place: int) -> "ClientData":
        return ClientData(self, place)

    def pooled(self) -> "Federation":
        """The centralised reference: client 0 trains on everybody's rows, others stay where they are."""
        return replace(
            self,
            train=_to_first(self.train),
            truth=None,
            iid=None,
            provenance={**self.provenance, "pooled": True},
        )


class ClientData(NamedTuple):
    """What one client holds: among others in a simulation, alone where it is real."""

    federation: Federation
    place: int  # in that federation

    @property
    def number(self) -> int:
        """What it draws at random depends on this, and not on who else is there."""
        numbers = self.federation.numbers
        return self.place if numbers is None else int(numbers[self.place])

    def samples(self, quota: Tensor | None = None) -> Tensor:
        """``[C]``: what it trains on, which is no more than it has."""
        own = self.federation.counts[self.place]
        return own if quota is None else quota.long().minimum(own)

    def size(self, quota: Tensor | None = None) -> int:
        """How many samples that is."""
        if quota is not None:
            return int(self.samples(quota).sum())
        bounds = self.federation.train.bounds
        return bounds[self.place + 1] - bounds[self.place]

    def rows(self, seed: int, quota: Tensor | None = None) -> Tensor:
        """The rows it trains on. A quota is filled with the same samples in every round."""
        train = self.federation.train
        rows = train.rows(self.place)
        if quota is None:
            return rows
        quota = self.samples(quota)
        shuffled = torch.randperm(len(rows), generator=generator(seed, "quota", self.number))
        labels = train.y[rows[shuffled]]
        rank = F.one_hot(labels, len(quota)).cumsum(0).gather(1, labels[:, None])[:, 0]
        keep = torch.zeros(len(rows), dtype=torch.bool)
        keep[shuffled] = rank <= quota[labels]
        return rows[keep]

    def polled(self, seed: int, round_number: int, samples: int | None = None) -> Tensor:
        """The rows on which it measures a loss: all, or ``samples`` drawn for this round."""
        rows = self.federation.train.rows(self.place)
        if samples is None:
            return rows
        draw = generator(seed, round_number, "poll", self.number)
        return rows[torch.randperm(len(rows), generator=draw)[:samples]]

    def alone(self, number: int, classes: Sequence[str]) -> Federation:
        """A federation of a copy of these data, in which it has this number; ``classes`` are everybody's."""
        whole, place = self
        if unknown := [name for name in whole.classes if name not in classes]:
            raise UserError(f"label '{unknown[0]}' is none of the federation's classes")
        code, own = (
            torch.tensor([classes.index(name) for name in whole.classes]),
            whole.part(torch.tensor([place])),
        )

        def coded(split: Split) -> Split:
            return replace(split, y=code[split.y])

        return replace(
            own,
            train=coded(own.train),
            validation=coded(own.validation),
            test=coded(own.test),
            classes=tuple(classes),
            own_scale=None if whole.own_scale is None else whole.own_scale.of(place),
            moments=None if whole.moments is None else whole.moments.of(place),
            numbers=torch.tensor([number]),
        )


def take(x: Tensor, rows: Tensor) -> Tensor:
    """``x[rows]``, copied row by row: a fifth of the time of indexing."""
    return F.embedding(rows.to(x.device), x.flatten(1)).view(len(rows), *x.shape[1:])


def fingerprint(splits: Iterable[Split], classes: Sequence[str], purpose: str = "") -> str:
    """A sha256 of all that is in these splits."""
    digests: dict[int, bytes] = {}
    total = hashlib.sha256(purpose.encode())
    for split in splits:
        for tensor in (split.x, split.y, split.index, split.offsets):
            if id(tensor) not in digests:  # splits of a pooled data set share x
                digests[id(tensor)] = _digest(tensor)
            total.update(digests[id(tensor)])
    total.update("\x1f".join(classes).encode())
    return total.hexdigest()


def _to_first(split: Split) -> Split:
    offsets = torch.full_like(split.offsets, len(split.index))
    offsets[0] = 0
    return replace(split, offsets=offsets)


def _digest(tensor: Tensor) -> bytes:
    head = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
    return hashlib.sha256(head + hashlib.sha256(tensor.contiguous().numpy().data).digest()).digest()
