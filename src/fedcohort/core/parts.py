"""The four roles of a method, and what passes between them.

========== ================================================= ==========================
role       question                                          default
========== ================================================= ==========================
Selector   who trains this round                             ``uniform``
Objective  what a client minimises, and what it remembers    ``plain``
Aggregator how one group's updates become its next model     ``fedavg``
Grouping   which model serves which client                   ``one``
========== ================================================= ==========================

A part is a frozen dataclass whose fields are its hyper-parameters; its hooks are pure functions. Whatever
changes during training is in a :class:`~fedcohort.core.state.State` and passes through the hooks as a
``Memory``: named tensors whose names and shapes stay the same from round to round. Client hooks are written
for one client; an engine decides where they run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fedcohort.core.profile import Privacy, Profile
from fedcohort.models.flat import Flat, Weights
from fedcohort.util.keyed import generator

Memory = dict[str, Tensor]
Ids = Tensor  # int64 client numbers
Clients = Mapping[int, Memory]  # what each client that has trained remembers
Recall = Callable[[int], Memory]  # what a client remembers
Sampling = Literal["all", "group"]  # one cohort of everybody, or one of each group: see Grouping.odds


class Part:
    """What every part can say about itself."""

    name: ClassVar[str]  # set by @register: the name of the file
    pooled: ClassVar[bool] = False  # True: all data are moved to one place first (not federated learning)
    silent: ClassVar[bool] = False  # True: nothing is sent between clients and server
    also_sends: ClassVar[str] = ""  # in words: what travels beside update and uses()

    def uses(self) -> frozenset[str]:
        """What it must be told beyond the model update; names from USES. Bytes and documentation follow
        from it."""
        return frozenset()

    def privacy(self, given: Privacy) -> Privacy:
        """How label counts are to be revealed to this part, when the federation reveals them as ``given``."""
        return given

    def summarise(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """At the client, for uses() "summary": a table of counts in which one example weighs 1 in all.

        Profile.summaries holds them as :class:`~fedcohort.core.profile.Privacy` reveals label counts.
        """
        raise NotImplementedError

    def server_bytes(self, profile: Profile) -> int:
        """The most memory it needs at the server, where that grows faster than the number of clients."""
        return 0

    def check(self, profile: Profile) -> None:
        """Raises UserError when this part cannot work on this federation."""

    def has_own(self, hook: str) -> bool:
        """Whether it does something else at a hook than its role does by default."""
        default = next(vars(cls)[hook] for cls in reversed(type(self).__mro__) if hook in vars(cls))
        return getattr(type(self), hook) is not default


# What a part may ask for beyond the model update, and what it means.
USES = {
    "counts": "label counts of each client, once before training",
    "losses": "the current model's loss on polled clients, before they are chosen",
    "loss": "the mean loss of the local steps, with the update",
    "trace": "the loss of every local step, with the update",
    "steps": "the number of local steps, with the update",
    "loss_before": "the sent model's loss on the client's training data, with the update",
    "outputs": "the trained model's mean class probabilities on its own training data, before the update",
    "summary": "what `summarise` counts of each client's examples, once before training",
    "validation": "validation data held out at each client",
    "cross_accuracy": "the accuracy of every cohort member's model on every other member's validation data",
}


PROBES = ("loss_before", "outputs")  # those of USES that a client computes beside its training


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
        per_row = ("ids", "group", "size", "steps", "reach", "trace", "buffers")
        cross = None if self.cross is None else self.cross[mask][:, mask]
        cross_size = None if self.cross_size is None else self.cross_size[mask]
        return replace(
            self,
            **{field: getattr(self, field)[mask] for field in per_row},
            up={key: rows[mask] for key, rows in self.up.items()},
            probes={key: rows[mask] for key, rows in self.probes.items()},
            cross=cross,
            cross_size=cross_size,
        )

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

    down: Memory  # what the server sent: "params", "buffers" and the aggregator's extras
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
    """How one linear layer on top of all groups' frozen encoders is trained: see merge.py."""

    steps: int  # mini-batches of each client a round
    joined: bool = False  # start as the sum of the groups' logits; False: from random weights


class Selector(Part):
    """Who trains this round."""

    heeds_odds: ClassVar[bool] = False  # True: draws with Round.draw, so odds that a grouping gives count

    def init_selector(self, profile: Profile) -> Memory:
        return {}

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        """Clients that must report the loss of their current model first. Default: nobody."""
        return None

    def poll_samples(self, now: Round) -> int | None:
        """On how many of its samples, drawn anew each round, a candidate measures that loss. Default: all."""
        return None

    def rehearse(self, memory: Memory, now: Round) -> Ids | None:
        """Clients that first train a copy of the model, which is thrown away once the candidates have told
        their loss on it. Default: nobody."""
        return None

    def learn(self, memory: Memory, now: Round, losses: Tensor, rehearsed: Tensor | None) -> Memory:
        """Learn from the candidates' losses before choosing; ``rehearsed`` are those after a rehearsal."""
        return memory

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        """At most ``now.cohort`` distinct clients of ``now.members``, in order of choice.

        ``losses`` is ``[N]``: NaN for clients that were not asked or did not answer with a finite number.
        """
        raise NotImplementedError

    def allow(self, memory: Memory, now: Round) -> Tensor | None:
        """``[selected, C]``: on how many samples of each class each of ``now.selected`` trains at most.
        Default: on all."""
        return None

    def judge(self, memory: Memory, now: Round, updates: Updates) -> Tensor | None:
        """``[S]``: whose update is wanted, seen from what was told before the upload (``updates.probes``).
        The others send none and forget the round. Default: everybody's."""
        return None

    def observe(self, memory: Memory, now: Round, updates: Updates) -> Memory:
        """Learn from the round: ``now.selected`` were asked, ``updates.ids`` answered, ``now.declined`` were
        judged out."""
        return memory


class Objective(Part):
    """What a client minimises, and what it remembers. Hooks run at the client, for one client."""

    personal: ClassVar[bool] = False  # True: the client keeps "params", "buffers" that serve it

    @property
    def affine(self) -> bool:
        """Whether ``anchor`` and ``logits`` say all it does to a step, so that every engine can fuse it."""
        return not self.has_own("criterion") and not self.has_own("correct")

    def init_client(self, profile: Profile) -> Memory:
        """What a client that has never trained remembers."""
        return {}

    def begin(self, view: View) -> Weights:
        """Where local training starts."""
        source = view.mine if self.personal else view.down
        return Weights(source["params"], source["buffers"])

    def anchor(self, view: View) -> Anchor:
        return Anchor()

    def logits(self, view: View) -> LogitMap:
        return LogitMap()

    def criterion(self, logits: Tensor, labels: Tensor, view: View) -> Tensor:
        """The loss of one mini-batch. Prefer ``logits``, which every engine can fuse."""
        scale, shift = self.logits(view)
        if scale is not None:
            logits = logits * scale
        if shift is not None:
            logits = logits + shift
        return F.cross_entropy(logits, labels)

    def correct(self, gradient: Tensor, params: Tensor, view: View) -> Tensor:
        """The gradient the optimiser sees. Prefer ``anchor``, which every engine can fuse."""
        return gradient

    def finish(self, begun: Weights, trained: Trained, view: View) -> tuple[Memory, Memory]:
        """(what goes up, what the client remembers)."""
        return {"delta": trained.weights.params - begun.params}, view.mine


class Aggregator(Part):
    """How one group's updates become its next model: ``step(params, weights @ deltas)``."""

    def init_aggregator(self, profile: Profile) -> Memory:
        return {}

    def broadcast(self, memory: Memory) -> Memory:
        """What is sent to clients beside the model."""
        return {}

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        """The factor of each client's delta; they need not sum to one. Default: its share of the samples."""
        return updates.shares

    def statistics(self, weights: Tensor, updates: Updates) -> Tensor:
        """``[S]``, summing to one: each client's part in the mean of BatchNorm statistics, when ``weights``
        are the factors of the deltas. Default: its share of the samples."""
        return updates.shares

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        """The next model and memory from the weighted sum of deltas."""
        return params + move, memory

    def iid(self, memory: Memory) -> Tensor | None:
        """``[N]``: which clients it takes for IID. Default: it does not say."""
        return None

    def serve(self, params: Tensor, memory: Memory) -> Tensor:
        """The model that answers, when it is not the one that clients train on."""
        return params

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """The memory of a group that now has these ``members``, from that of the group they came from."""
        return memory


class Grouping(Part):
    """Which model serves which client. ``memory["group"]`` is ``[N]``: the number of each client's group.

    When a hook returns a group number that did not exist, the loop makes that group a copy of the one its
    members came from; numbers have no gaps. A hook before aggregation may move clients between groups that
    exist only if ``remodel`` makes up for updates measured from another group's model.
    """

    sampling: Sampling = "group"  # a cohort of each group; "all": one, each of whom trains for its own group
    shared: ClassVar[bool] = False  # True: a client may be chosen for several groups, and counts for each

    def init_grouping(self, profile: Profile) -> Memory:
        return {"group": torch.zeros(profile.num_clients, dtype=torch.long)}

    def init_models(self, memory: Memory, profile: Profile) -> Sequence[Weights]:
        """The model of each group before the first round. Default: the same for all."""
        return [profile.model.init(profile.seed)] * (int(memory["group"].max()) + 1)

    def asks(self, memory: Memory, now: Round) -> Ids:
        """Clients that get every group's model and answer before they train. Called before cohorts are
        chosen, when ``now.selected`` is empty, and after; and for all who are evaluated, when ``now.cohort``
        is 0. Default: nobody."""
        return now.members[:0]

    def common(self, model: Flat, weights: Weights) -> int:
        """How many bytes of a model all groups have in common, so that who gets every group's model gets them
        once. Default: none."""
        return 0

    def answer(self, losses: Tensor) -> Tensor:
        """At the client: what it says to the loss ``[G, n]`` of each group's model on each of its samples."""
        raise NotImplementedError

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        """Revise groups by the answers of clients ``ids``, stacked."""
        raise NotImplementedError

    def odds(self, memory: Memory, profile: Profile) -> Tensor:
        """``[N, cohorts]``: how likely each client is to be drawn for each cohort; 0 or False for not at all.
        Default: by ``sampling``."""
        if self.sampling == "all":
            return torch.ones(profile.num_clients, 1)
        return memory["group"][:, None] == torch.arange(int(memory["group"].max()) + 1)

    def cohort(self, members: int, profile: Profile) -> int:
        """How many of a group's ``members`` train a round. Default: as large a share as of all clients."""
        return min(members, max(1, round(profile.share * members)))

    def calls_all(self, memory: Memory, group: int) -> bool:
        """Whether all clients of the group train this round, whatever the selector would say."""
        return False

    def tailor(self, memory: Memory, client: int, models: Sequence[Weights]) -> Memory:
        """What this client is sent beside or instead of its group's "params" and "buffers". Default:
        nothing."""
        return {}

    def assign(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Revise groups before this round's updates are aggregated."""
        return memory

    def merges(self, number: int) -> Merge | None:
        """Whether round ``number``, and so every later one, trains a layer on top of all groups' frozen
        models. The schedule of the learning rate starts anew in the first of them. Default: never."""
        return None

    def remodel(
        self, memory: Memory, models: Sequence[Weights], updates: Updates, now: Round
    ) -> Sequence[Weights]:
        """Revise the groups' models after aggregation. Default: as the aggregator made them."""
        return models

    def regroup(self, memory: Memory, updates: Updates, now: Round) -> Memory:
        """Revise groups after this round's updates were aggregated."""
        return memory

    def of_groups(self, memory: Memory) -> Memory:
        """What results shall tell of each group, ``[groups]`` by the name of the metric, after every round.
        Default: nothing."""
        return {}

    def of_clients(self, memory: Memory) -> Memory:
        """What they shall tell of each client, ``[N]``, when the run ends. Default: nothing."""
        return {}

    def place(self, group: Tensor, counts: Tensor, newcomers: Tensor) -> Tensor | None:
        """``[n, groups]``: how far clients that join later, with label counts ``newcomers [n, C]``, are from
        each group (ascending) of the members, who hold ``counts``. Default: no rule of its own."""
        return None


ROLES: dict[str, type[Part]] = {
    "selector": Selector,
    "objective": Objective,
    "aggregator": Aggregator,
    "grouping": Grouping,
}
