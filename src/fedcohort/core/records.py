"""What passes between the parts of a method, the round and the engines: plain records of tensors."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedcohort.core.profile import Profile
from fedcohort.models.flat import Weights
from fedcohort.util.keyed import generator

Memory = dict[str, Tensor]  # tensors by name: what a part or a client remembers, or a message holds
Ids = Tensor  # int64 client numbers
Clients = Mapping[int, Memory]  # what each client that has trained remembers
Recall = Callable[[int], Memory]  # what a client remembers
Phase = Literal["before", "chosen", "serving"]  # of Grouping.asks
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]
Sampling = Literal["all", "group"]  # one cohort of everybody, or one of each group: see Grouping.odds


@dataclass(frozen=True)
class Round:
    """Where we are: one round, seen from one group of clients."""

    number: int
    profile: Profile
    group: int  # which group is choosing or being aggregated
    members: Ids  # its clients that have data, ascending
    cohort: int  # how many of them are to train
    selected: Ids = field(
        default_factory=lambda: torch.zeros(0, dtype=torch.long)
    )  # asked to train, once chosen
    declined: Ids = field(
        default_factory=lambda: torch.zeros(0, dtype=torch.long)
    )  # trained, but were judged not worth an upload
    odds: Tensor | None = None  # [members] how likely each is to be drawn; None: all alike
    models: tuple[Weights, ...] = ()  # every group's, before this round

    @property
    def is_member(self) -> Tensor:
        """[N]: who of all clients belongs to the group."""
        mark = torch.zeros(self.profile.num_clients, dtype=torch.bool)
        mark[self.members] = True
        return mark

    @property
    def lr(self) -> float:
        """The clients' learning rate."""
        return self.profile.local.lr_at(self.number - self.profile.began)

    def generator(self, purpose: str) -> torch.Generator:
        """Randomness for this purpose in this round and group."""
        return generator(self.profile.seed, self.number, purpose, self.group)

    def draw(self, purpose: str, odds: Tensor | None = None, count: int | None = None) -> Ids:
        """``count`` distinct members (None: a cohort) at random, one after the other by ``odds [members]``.

        Odds that the grouping gives its members count as well.
        """
        key, count = self.generator(purpose), self.cohort if count is None else count
        if odds is None and self.odds is None:
            return self.members[torch.randperm(len(self.members), generator=key)[:count]]
        given = [factor.double() for factor in (odds, self.odds) if factor is not None]
        return self.members[torch.multinomial(torch.stack(given).prod(0), count, generator=key)]


def shapes_of(memory: Memory) -> Shapes:
    """What a memory looks like, whatever its numbers are."""
    return {key: (tuple(value.shape), value.dtype) for key, value in memory.items()}


def mean_memory(clients: Clients, members: Ids, key: str, blank: Tensor) -> Tensor:
    """The mean of what each of these ``members`` remembers under ``key``; who never trained counts as zero,
    shaped like ``blank``."""
    known = [clients[client][key] for client in members.tolist() if client in clients]
    return (torch.stack(known).sum(0) if known else torch.zeros_like(blank)) / len(members)


PER_ROW = ("ids", "group", "size", "steps", "reach", "trace", "buffers")  # of Updates


@dataclass(frozen=True)
class Updates:
    """What came back, one row per client that answered, in ascending order of client."""

    ids: Ids  # [S]
    group: Tensor  # [S] the group each client trained for
    size: Tensor  # [S] training samples
    steps: Tensor  # [S] local steps really taken
    reach: Tensor  # [S] see optimiser.reach
    trace: Tensor  # [S, T] loss of each local step, NaN after a client's last
    up: Memory  # each [S, ...]: what the objective sent
    buffers: Tensor  # [S, B]
    probes: Memory = field(default_factory=dict)  # each [S, ...]: those of PROBES that were asked for
    cross: Tensor | None = None  # [S, S] accuracy of row's model on column's validation data, if asked for
    cross_size: Tensor | None = None  # [S] validation samples behind each column

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, mask: Tensor) -> "Updates":
        """Only the rows where ``mask`` holds."""
        if bool(mask.all()):
            return self  # one group, everybody in it: nothing to copy
        cross = None if self.cross is None else self.cross[mask][:, mask]
        cross_size = None if self.cross_size is None else self.cross_size[mask]
        return replace(
            self,
            **{field: getattr(self, field)[mask] for field in PER_ROW},
            up={key: rows[mask] for key, rows in self.up.items()},
            probes={key: rows[mask] for key, rows in self.probes.items()},
            cross=cross,
            cross_size=cross_size,
        )

    @classmethod
    def together(cls, parts: Sequence["Updates"]) -> "Updates":
        """Those of several groups of one cohort, in ascending order of client."""
        parts = [part for part in parts if len(part)] or list(parts[:1])
        if len(parts) == 1:
            return parts[0]
        order = torch.cat([part.ids for part in parts]).argsort()

        def rows(tables: Iterable[Tensor]) -> Tensor:
            return torch.cat(list(tables))[order]

        return cls(
            **{name: rows(getattr(part, name) for part in parts) for name in PER_ROW},
            up={key: rows(part.up[key] for part in parts) for key in parts[0].up},
            probes={key: rows(part.probes[key] for part in parts) for key in parts[0].probes},
        )

    def with_deltas(self, deltas: Tensor) -> "Updates":
        """The same clients with other movements, ``[S, P]``."""
        return replace(self, up={**self.up, "delta": deltas})

    @property
    def shares(self) -> Tensor:
        """Each client's share of the samples; sums to one."""
        return self.size.to(torch.float32) / self.size.sum()

    @property
    def loss(self) -> Tensor:
        """[S]: the mean loss of each client's local steps."""
        return self.trace.nanmean(1)

    def with_losses(self, known: Tensor) -> Tensor:
        """``known [N]``, with the losses of those who trained."""
        return known.index_copy(0, self.ids, self.loss.to(known.dtype))

    @property
    def even(self) -> Tensor:
        """The same share for each client."""
        return torch.full((len(self),), 1 / max(1, len(self)))


class View(NamedTuple):
    """All that one client sees during its round."""

    down: Memory  # what the server sent: "params", "buffers" and what else goes down
    mine: Memory  # what this client remembers
    counts: Tensor  # [C] its own label counts, exact
    size: int
    lr: float
    steps: int


class Anchor(NamedTuple):
    """What is constant during a round: the gradient becomes ``g + pull * (x - center) + offset``, and after
    each step of the optimiser ``x`` moves by ``lr * drift``."""

    pull: float = 0.0
    center: Tensor | None = None  # None: the model that was sent
    offset: Tensor | None = None
    drift: Tensor | None = None  # unlike an offset it does not pass through momentum or Adam


class LogitMap(NamedTuple):
    """A change of logits that is constant during a round: ``scale * z + shift``; evaluation never uses it."""

    scale: Tensor | None = None
    shift: Tensor | None = None


class Trained(NamedTuple):
    """The outcome of one client's local steps."""

    weights: Weights
    trace: Tensor  # [T] loss of each step
    steps: int
    reach: float
    gradient: Callable[
        [Tensor], Tensor
    ]  # the client's full-data gradient at given parameters (one more pass)


class Merge(NamedTuple):
    """How one linear layer on top of all groups' frozen encoders is trained: see core/round/merge.py."""

    steps: int  # mini-batches of each client a round
    joined: bool = False  # start as the sum of the groups' logits; False: from random weights
