"""What few methods need: a part that inherits from one of these beside its role is asked for it, too."""

import warnings
from collections.abc import Sequence

from torch import Tensor

from fedcohort.core.profile import Privacy
from fedcohort.core.records import Clients, Ids, Memory, Merge, Phase, Round, Updates
from fedcohort.core.roles.part import Part
from fedcohort.core.roles.transform import Transform
from fedcohort.models.flat import Flat, Weights
from fedcohort.util.errors import UserError


class Hides(Part):
    """Any part that wants label counts revealed less exactly than the federation reveals them."""

    def privacy(self, given: Privacy) -> Privacy:
        """How label counts are to be revealed, when the federation reveals them as ``given``."""
        raise NotImplementedError


class Summarises(Part):
    """Any part whose uses() have "summary"."""

    def summarise(self, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
        """At the client: a table of counts in which one example weighs 1 in all.

        Profile.summaries holds them as :class:`~fedcohort.core.profile.Privacy` reveals label counts.
        """
        raise NotImplementedError


class Polls(Part):
    """A selector that asks some clients for the loss of their current model first."""

    def candidates(self, memory: Memory, now: Round) -> Ids | None:
        """Whom. None: nobody this time."""
        raise NotImplementedError

    def poll_samples(self, now: Round) -> int | None:
        """On how many of its samples, drawn anew each round, a candidate measures that loss. Default: all."""
        return None

    def learn(self, memory: Memory, now: Round, losses: Tensor, rehearsed: Tensor | None) -> Memory:
        """Learn from the candidates' losses before choosing; ``rehearsed`` are those after a rehearsal, if
        there was one."""
        return memory


class Rehearses(Polls):
    """A selector that lets some clients train a copy of the model first, which is thrown away once the
    candidates have told their loss on it."""

    def rehearse(self, memory: Memory, now: Round) -> Ids | None:
        """Whom. None: nobody this time."""
        raise NotImplementedError


class Rations(Part):
    """A selector that lets clients train on some of their samples only."""

    def allow(self, memory: Memory, now: Round) -> Tensor | None:
        """``[selected, C]``: on how many samples of each class each of ``now.selected`` trains at most. None:
        on all."""
        raise NotImplementedError


class Judges(Part):
    """A selector that looks at what clients tell of their training before they upload it."""

    def judge(self, memory: Memory, now: Round, updates: Updates) -> Tensor | None:
        """``[S]``: whose update is wanted, seen from ``updates.probes``. The others send none and forget the
        round. None: everybody's."""
        raise NotImplementedError


class Freezes(Part):
    """An objective that leaves some parameters as they were sent."""

    def frozen(self, model: Flat) -> Tensor | None:
        """``[P]``: which, beside those that the network itself freezes. None: no others."""
        raise NotImplementedError


class TellsIID(Part):
    """An averaging that knows which clients are IID."""

    def iid(self, memory: Memory) -> Tensor | None:
        """``[N]``: those it takes for IID. None: it does not say."""
        raise NotImplementedError


class Broadcasts(Part):
    """A server optimiser that tells clients more than the model."""

    def broadcast(self, memory: Memory) -> Memory:
        """What is sent beside it."""
        return {}

    def inherit(self, memory: Memory, members: Ids, clients: Clients) -> Memory:
        """The memory of a group that now has these ``members``, from that of the group they came from."""
        return memory


class Serves(Part):
    """A server optimiser that answers with another model than clients train on."""

    def serve(self, params: Tensor, memory: Memory) -> Tensor:
        """That model."""
        return params


class Asks(Part):
    """A grouping that lets clients try every group's model."""

    @property
    def may_ask(self) -> bool:
        """Whether it ever does, with its settings; clients answer no other."""
        return True

    def asks(self, memory: Memory, now: Round, phase: Phase) -> Ids:
        """Who gets every group's model and answers: ``"before"`` cohorts are chosen, of ``now.members``; once
        they are ``"chosen"``, of ``now.selected``; or when all of ``now.selected`` are to be served
        (``"serving"``)."""
        raise NotImplementedError

    def answer(self, losses: Tensor) -> Tensor:
        """At the client: what it says to the loss ``[G, n]`` of each group's model on each of its samples."""
        raise NotImplementedError

    def hear(self, memory: Memory, ids: Ids, answers: Tensor) -> Memory:
        """Revise groups by the answers of clients ``ids``, stacked."""
        raise NotImplementedError


class Tailors(Part):
    """A grouping that sends each client something of its own."""

    def tailor(self, memory: Memory, client: int, models: Sequence[Weights]) -> Memory:
        """What this client is sent beside or instead of its group's "params" and "buffers"."""
        raise NotImplementedError


class Merges(Part):
    """A grouping that ends with one layer on top of all groups' frozen models."""

    def merges(self, number: int) -> Merge | None:
        """Whether round ``number``, and so every later one, trains that layer. The schedule of the learning
        rate starts anew in the first of them."""
        raise NotImplementedError


class Tells(Part):
    """A grouping that has more to tell in results than who is in which group."""

    def of_groups(self, memory: Memory) -> Memory:
        """Of each group, ``[groups]`` by the name of the metric, after every round."""
        return {}

    def of_clients(self, memory: Memory) -> Memory:
        """Of each client, ``[N]``, when the run ends."""
        return {}


class PlacesNewcomers(Part):
    """A grouping with a rule for clients that join later."""

    def place(self, group: Tensor, counts: Tensor, newcomers: Tensor) -> Tensor | None:
        """``[n, groups]``: how far clients with label counts ``newcomers [n, C]`` are from each group
        (ascending) of the members, who hold ``counts``. None: it cannot tell."""
        raise NotImplementedError


# Of which every role had the hooks in 0.1.0.
OPTIONS: tuple[type[Part], ...] = (
    Hides,
    Summarises,
    Polls,
    Rehearses,
    Rations,
    Judges,
    TellsIID,
    Broadcasts,
    Serves,
    Asks,
    Tailors,
    Merges,
    Tells,
    PlacesNewcomers,
)


GONE = ("begin", "correct")  # hooks of objectives in 0.1.0 that no method had


def adopt_hooks(cls: type[Part]) -> None:
    """Lets a part that was written for 0.1.0, where every role had these hooks, keep those it defines."""
    if issubclass(cls, Transform):  # there were none
        return
    for hook in (hook for hook in GONE if callable(getattr(cls, hook, None))):
        raise UserError(
            f"{cls.__name__} has '{hook}', which nobody calls any more: use anchor, criterion or personal"
        )
    for option in OPTIONS:
        hooks = [hook for hook in vars(option) if not hook.startswith("_")]
        defined = [hook for hook in hooks if callable(getattr(cls, hook, None))]
        if defined and not issubclass(cls, option):
            cls.__bases__ = (*cls.__bases__, option)
            warnings.warn(
                f"{cls.__name__} has '{defined[0]}': from the next version on, inherit from "
                f"fedcohort.api.{option.__name__} beside its role",
                FutureWarning,
                stacklevel=4,  # through fedcohort.api.register
            )
