"""Clients of one run on all machines of a Ray cluster.

Each machine holds some shards of clients (:mod:`.shards`), trains them with the pool engine (:mod:`.host`)
and keeps what they learned. Where a method only averages, as most do, a round sends the model to every
machine and a few sums back; a method that looks at single updates fetches them. A machine that is lost leaves
its shards to the others, which are asked again what it was asked; nothing depends on who holds what.
"""

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcohort.core.adapting import trained
from fedcohort.core.deltas import BlockRow
from fedcohort.core.engine import Ahead, Answer, ModelTrial, Order, Samples, Scores, Served
from fedcohort.core.records import Ids, Memory, Merge, Recall
from fedcohort.core.roles import Objective
from fedcohort.core.round.merge import merged_task
from fedcohort.core.tally import Tally
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation
from fedcohort.engines.cluster import Cluster, LostError, Machine, heard, room
from fedcohort.engines.host import KeptStatistics, ShardAnswer, ShardOrder, Work
from fedcohort.engines.shards import Shards, Sums, climb, share_out
from fedcohort.models.flat import Weights
from fedcohort.util.errors import UserError

SMALL = 100_000  # bytes up to which Ray sends something along with a call
GB = 10**9
NAMES = itertools.count()


@dataclass
class Ticket:
    """One round of training, as it can be asked for again."""

    number: int
    orders: Mapping[int, Sequence[ShardOrder]]  # of each shard
    downs: Sequence[Memory]
    facts: tuple[Objective, int]  # and the round
    where: dict[int, Machine] = field(default_factory=dict)  # who holds the movements of each shard


class Question(NamedTuple):
    """What machines are asked about their shards."""

    what: str  # a method of Node
    facts: Sequence[Any]
    models: Sequence[Any] = ()
    uses: Mapping[int, set[int]] | None = None  # which of the models each shard needs; None: all

    def numbers(self, shards: Iterable[int]) -> list[int]:
        """Of the models that these shards need."""
        if self.uses is None:
            return list(range(len(self.models)))
        return sorted(set().union(*(self.uses[shard] for shard in shards)))


class RayBlock:
    """The movements of a cohort, wherever they are."""

    each: Callable[..., Any] = map

    def __init__(self, engine: "RayEngine", ticket: Ticket, held: Mapping[int, int], like: Tensor) -> None:
        self.engine, self.ticket, self.held, self.like = engine, ticket, held, like
        self.size = sum(held.values())
        weakref.finalize(self, engine.over.append, ticket.number)

    def combine(self, weights: Tensor) -> Tensor:
        parts = dict(zip(self.held, weights.split(list(self.held.values())), strict=True))
        asked = {shard: own for shard, own in parts.items() if own.ne(0).any()}
        sums: Sums = {}
        for own in self.engine.ask_again(self.ticket, "combine", asked):
            sums |= own
        top = climb(sums, self.engine.shards.number, range(self.engine.shards.number))
        return next(iter(top.values()), torch.zeros_like(self.like))

    def movements(self, places: Sequence[int]) -> list[Tensor]:
        owners = [(shard, place) for shard, many in self.held.items() for place in range(many)]
        asked: dict[int, list[int]] = {}
        for shard, place in (owners[place] for place in places):
            asked.setdefault(shard, []).append(place)
        told = _joined(self.engine.ask_again(self.ticket, "movements", asked))
        rows = {shard: iter(told[shard]) for shard in asked}
        return [next(rows[owners[place][0]]) for place in places]


class RayEngine:
    """Trains and evaluates on a cluster; ``read``, where given, lets each machine read all clients itself."""

    messages = 0

    def __init__(
        self,
        task: Task,
        cluster: Cluster,
        read: Callable[[], Federation] | None = None,
        base: "RayEngine | None" = None,
        merge: tuple[Sequence[Weights], Merge] | None = None,
    ) -> None:
        """``base`` is the engine whose clients are trained on top of merged models here."""
        self.task, self.cluster, self.read, self.base = task, cluster, read, base
        self.shards: Shards = Shards.of(task) if base is None else base.shards
        of = task if base is None else base.task
        self.work = Work(of.model, of.local, of.seed, self.shards, merge)
        self.name, self.tickets = f"task {next(NAMES)}", itertools.count()
        self.over: list[int] = []  # tickets that nobody will ask about any more
        self.opened: set[Machine] = set()
        self.holder: dict[int, Machine] = {}
        self._merged: tuple[Sequence[Weights], RayEngine] | None = None
        weakref.finalize(self, _close, self.opened, self.name)
        self._hold(dict(enumerate(self._share_out())))

    def merged(self, encoders: Sequence[Weights], plan: Merge) -> "RayEngine":
        if self._merged is None or self._merged[0] is not encoders:
            task = merged_task(self.task, encoders, plan, elsewhere=True)
            self._merged = encoders, RayEngine(task, self.cluster, self.read, self, (encoders, plan))
        return self._merged[1]

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        downs: dict[int, tuple[int, Memory]] = {}
        for order in orders:
            downs.setdefault(id(order.down), (len(downs), order.down))
        given = [ShardOrder(order._replace(down={}), downs[id(order.down)][0]) for order in orders]
        of_shards = self.shards.of_each(torch.tensor([order.client for order in orders], dtype=torch.long))
        asked = {shard: [given[place] for place in places] for shard, places in of_shards.items()}
        messages = [down for _, down in downs.values()]
        ticket = Ticket(next(self.tickets), asked, messages, (objective, number))
        told = self._train(ticket, asked)
        held = {shard: sum(one.held for one in told[shard]) for shard in asked}
        like = messages[0]["params"] if messages else torch.zeros(0)
        block = RayBlock(self, ticket, held, like)
        places, known = itertools.count(), {order.client: order for order in orders}
        answers = {}
        for answer, is_held, is_same in (one for shard in asked for one in told[shard]):
            if is_held:
                row: Any = BlockRow(block, next(places))
                answer = answer._replace(up={"delta": row, **answer.up})
            mine = known[answer.client].mine if is_same else answer.mine
            answers[answer.client] = answer._replace(mine=mine)
        return [answers[order.client] for order in orders if order.client in answers]

    def _train(self, ticket: Ticket, shards: Iterable[int]) -> dict[int, list[ShardAnswer]]:
        over, self.over[:] = list(self.over), []
        asked = {shard: ticket.orders[shard] for shard in shards}
        uses = {shard: {one.down for one in orders} for shard, orders in asked.items()}
        facts = ticket.number, *ticket.facts, over
        return _joined(self._ask(Question("train", facts, ticket.downs, uses), asked, ticket.where))

    def ask_again(self, ticket: Ticket, what: str, asked: Mapping[int, Any]) -> list[Any]:
        """About movements; those that were lost with a machine are made again first."""
        told: list[Any] = []
        left = dict(asked)
        while left:
            if gone := [shard for shard in left if ticket.where[shard] is not self.holder[shard]]:
                self._train(ticket, gone)
                continue
            done, left = self._try(Question(what, (ticket.number,)), left)
            told += done
        return told

    def adapt(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Served]:
        return trained(orders, self.train(objective, orders, number))

    def collect(self, answers: Sequence[Answer], number: int) -> list[Answer]:
        return list(answers)

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        told = self._each_client("losses", trial, samples, number)
        return told if len(told) else torch.zeros(0)

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        return trial.clients, self._each_client("survey", trial, answer)

    def cross_accuracy(self, trial: ModelTrial) -> Tensor:
        return self._each_client("cross_accuracy", trial, axis=1)

    def _each_client(self, what: str, trial: ModelTrial, *facts: Any, axis: int = 0) -> Tensor:
        """One question to each of the clients; the answers in their order, along ``axis``."""
        models, clients, kept = trial
        places = self.shards.of_each(clients)
        asked = {shard: (clients[own], _kept(kept, clients[own])) for shard, own in places.items()}
        told = _joined(self._ask(Question(what, facts, models), asked))
        if not told:
            return torch.zeros(0)
        order = torch.cat([places[shard] for shard in asked]).argsort()
        return torch.cat([told[shard] for shard in asked], axis).index_select(axis, order)

    def score(
        self,
        models: Sequence[Served],
        ahead: Ahead | None = None,
        kept: Recall | None = None,
        on: Samples = "test",
    ) -> Scores:
        served: dict[int, list[tuple[int, Ids]]] = {shard: [] for shard in range(self.shards.number)}
        for number, (_, members) in enumerate(models):
            for shard, places in self.shards.of_each(members).items():
                served[shard].append((number, members[places]))
        uses = {shard: {number for number, _ in own} for shard, own in served.items()}
        asked = {shard: (own, _kept(kept, self.shards.clients(shard))) for shard, own in served.items()}
        question = Question("score", (on,), [model for model, _ in models], uses)
        told = _joined(self._ask(question, asked))
        *numbers, tallies = zip(*(told[shard] for shard in sorted(told)), strict=True)
        moved = [own.moved(self.shards.bounds[shard]) for shard, own in enumerate(tallies)]
        return Scores._make([*map(np.concatenate, numbers), Tally.joined(moved)])

    def _ask(
        self, question: Question, asked: Mapping[int, Any], where: dict[int, Machine] | None = None
    ) -> list[Any]:
        """All machines that hold these shards; what a lost one was asked, others are. ``where`` notes who
        answered: it may be lost itself before the others have."""
        told: list[Any] = []
        left, machines = dict(asked), self._holders(asked).values()
        needed = Counter(itertools.chain(*(question.numbers(shards) for shards in machines)))
        question = question._replace(models=_shared(question.models, needed))
        while left:
            asked, holder = left, dict(self.holder)
            done, left = self._try(question, asked)
            told += done
            if where is not None:
                where |= {shard: holder[shard] for shard in asked if shard not in left}
        return told

    @room()
    def _try(self, question: Question, asked: Mapping[int, Any]) -> tuple[list[Any], dict[int, Any]]:
        """What was answered, and what has to be asked again because a machine was lost."""
        calls, (what, facts, models, _) = {}, question
        for machine, shards in self._holders(asked).items():
            own = {shard: asked[shard] for shard in shards}
            numbers = question.numbers(shards)
            sent = [models[number] for number in numbers]
            calls[machine] = machine.actor.ask.remote(self.name, what, own, facts, numbers, *sent), shards
        told: list[Any] = []
        lost: list[Machine] = []
        again: dict[int, Any] = {}
        for machine, (call, shards) in calls.items():
            try:
                told += heard([call])
            except LostError:
                lost.append(machine)
                again |= {shard: asked[shard] for shard in shards}
        if lost:
            self._lose(lost)
        return told, again

    def _holders(self, shards: Iterable[int]) -> dict[Machine, list[int]]:
        held: dict[Machine, list[int]] = {}
        for shard in shards:
            held.setdefault(self.holder[shard], []).append(shard)
        return held

    def _lose(self, lost: Sequence[Machine]) -> None:
        """Their shards go to those that have least to do."""
        for machine in lost:
            self.cluster.lose(machine)
        self._hold(self._next_holders())

    def _next_holders(self) -> dict[int, Machine]:
        machines = self.cluster.machines or self.cluster.staff()
        load = dict.fromkeys(machines, 0.0)
        homeless = []
        for shard, machine in self.holder.items():
            if machine in load:
                load[machine] += self._weight(shard)
            else:
                homeless.append(shard)
        moved = {}
        for shard in sorted(homeless, key=self._weight, reverse=True):
            moved[shard] = min(load, key=lambda machine: load[machine] / machine.cores)
            load[moved[shard]] += self._weight(shard)
        return moved

    def _share_out(self) -> list[Machine]:
        if self.base is not None:
            return [self.base.holder[shard] for shard in range(self.shards.number)]
        machines = self.cluster.staff()
        weight = [self._weight(shard) for shard in range(self.shards.number)]
        return [machines[owner] for owner in share_out(weight, [machine.cores for machine in machines])]

    def _weight(self, shard: int) -> float:
        clients = self.shards.clients(shard)
        return float(self.task.federation.sizes[0, clients].sum()) + len(clients)

    @room()
    def _hold(self, wanted: Mapping[int, Machine]) -> None:
        """Gives machines their shards, one at a time to each, so that little is under way at once."""
        self.holder |= wanted
        self._refuse_too_little_memory()
        left = list(wanted)
        while left:
            calls = {}
            for shard in left:
                machine = self.holder[shard]
                if machine not in calls:
                    calls[machine] = shard, self._give(machine, shard)
            lost = []
            for machine, (shard, call) in calls.items():
                try:
                    heard([call])
                    left.remove(shard)
                except LostError:
                    lost.append(machine)
            if lost:
                for machine in lost:
                    self.cluster.lose(machine)
                moved = self._next_holders()
                self.holder |= moved
                left = list({*left, *moved})

    def _give(self, machine: Machine, shard: int) -> Any:
        if machine not in self.opened:
            machine.actor.open.remote(self.name, self.work)
            self.opened.add(machine)
        root = self.base or self
        data: Any = self.read or root.task.data.part(self.shards.clients(shard))
        if self.base is not None and self.base.holder[shard] is machine:
            data = self.base.name  # it has them already
        return machine.actor.take.remote(self.name, shard, data)

    def _refuse_too_little_memory(self) -> None:
        data = (self.base or self).task.data
        example = data.train.x[:1].nbytes + data.train.y[:1].nbytes
        whole, what, cure = 0, "its clients' data take", "add machines, or memory (ray start --memory)"
        if self.read is not None:  # everybody's data are there until a machine has taken its own
            whole, what = int(data.sizes.sum()), "reading all clients' data takes"
            cure = "add memory (ray start --memory), or let data be sent (run.data = 'sent')"
        for machine, shards in self._holders(self.holder).items():
            clients = torch.cat([self.shards.clients(shard) for shard in shards])
            need = (whole + int(data.sizes[:, clients].sum())) * example
            if machine.memory and need > machine.memory:
                raise UserError(
                    f"{machine.address} has {machine.memory / GB:.2g} GB of memory for Ray, and {what} "
                    f"{need / GB:.2g} GB: {cure}"
                )


@room()
def _shared(models: Sequence[Any], machines: Mapping[int, int]) -> list[Any]:
    """What goes to several machines is written down once, if it is large."""
    import ray

    def is_shared(number: int, model: Any) -> bool:
        tensors = model.values() if isinstance(model, Mapping) else model
        return machines.get(number, 0) > 1 and sum(tensor.nbytes for tensor in tensors) > SMALL

    return [ray.put(each) if is_shared(number, each) else each for number, each in enumerate(models)]


def _joined(told: Iterable[Mapping[int, Any]]) -> dict[int, Any]:
    """What all machines said, by shard."""
    return {shard: said for own in told for shard, said in own.items()}


def _kept(kept: Recall | None, clients: Ids) -> KeptStatistics:
    """What these clients remember of their own statistics."""
    return None if kept is None else {c: {"buffers": kept(c)["buffers"]} for c in clients.tolist()}


def _close(machines: set[Machine], name: str) -> None:
    """Nobody asks about this task any more."""
    import ray

    if ray.is_initialized():
        for machine in machines:
            with suppress(Exception):  # of a cluster that has ended, while another has begun
                machine.actor.close.remote(name)
