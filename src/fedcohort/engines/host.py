"""One machine of a cluster: it holds shards of clients, trains and evaluates them, and sums what they
learned.

It knows nothing of the cluster. Whatever it is asked, it is asked of some of its shards, and answers shard by
shard; a client's movement stays here unless somebody wants to see it.
"""

import platform
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from fedcohort.core.deltas import BlockRow, Rows, is_finite
from fedcohort.core.engine import Answer, ModelTrial, Order, Samples, Scores
from fedcohort.core.profile import Local
from fedcohort.core.records import Ids, Memory, Merge, Recall
from fedcohort.core.roles import Objective
from fedcohort.core.round.merge import merged_task
from fedcohort.core.task import Task
from fedcohort.data.federation import Federation
from fedcohort.engines.pool import PoolEngine, threads
from fedcohort.engines.shards import Shards, Sums, climb
from fedcohort.models.flat import Flat, Weights
from fedcohort.util.errors import UserError

T = TypeVar("T")
VECTORS = "the processor's kind of vectors"  # they say in which order numbers are added
# What clients remember of their own BatchNorm statistics, if they use it.
KeptStatistics = Mapping[int, Memory] | None
Tried = tuple[Ids, KeptStatistics]  # who tries models, with statistics of whom


class Work(NamedTuple):
    """What all shards of a task have in common."""

    model: Flat
    local: Local
    seed: int
    shards: Shards
    merge: tuple[Sequence[Weights], Merge] | None = None


class ShardOrder(NamedTuple):
    """An order whose message down is one of those that come with it."""

    order: Order
    down: int


class ShardAnswer(NamedTuple):
    """An answer whose movement may have stayed where it was made."""

    answer: Answer
    held: bool
    same: bool  # it remembers what it did before


class Node:
    """The shards of one task that are held here."""

    def __init__(self, work: Work, workers: int) -> None:
        self.work, self.workers = work, 1 if work.model.draws_globally else workers
        self.engines: dict[int, PoolEngine] = {}
        self.own = threading.local()  # a network for each worker, whatever shard it works on
        self.rows: dict[tuple[int, int], list[Tensor | BlockRow]] = {}  # movements by ticket and shard

    def take(self, shard: int, federation: Federation) -> None:
        """Holds one more shard."""
        model, local, seed, _, merge = self.work
        task = Task(federation, model, local, seed=seed)
        engine = PoolEngine(task if merge is None else merged_task(task, *merge), workers=1)
        engine.own = self.own
        self.engines[shard] = engine

    def train(
        self,
        asked: Mapping[int, Sequence[ShardOrder]],
        downs: Mapping[int, Memory],
        ticket: int,
        objective: Objective,
        number: int,
        over: Sequence[int],
    ) -> dict[int, list[ShardAnswer]]:
        """Trains, and keeps movements under the ``ticket`` until it is among those that are ``over``."""
        self.rows = {key: rows for key, rows in self.rows.items() if key[0] not in over}

        def train(shard: int) -> list[ShardAnswer]:
            first = self.work.shards.bounds[shard]
            orders = [
                given.order._replace(client=given.order.client - first, down=downs[given.down])
                for given in asked[shard]
            ]
            mine = {order.client: order.mine for order in orders}
            rows = self.rows[ticket, shard] = []
            told = []
            for answer in self.engines[shard].train(objective, orders, number):
                delta = answer.up.get("delta")
                held, same = delta is not None and is_finite(delta), answer.mine is mine[answer.client]
                if held:
                    rows.append(delta)  # type: ignore[arg-type]
                    answer = answer._replace(up={k: v for k, v in answer.up.items() if k != "delta"})
                answer = answer._replace(client=answer.client + first, mine={} if same else answer.mine)
                told.append(ShardAnswer(answer, held, same))
            return told

        return self._each(train, asked)

    def combine(self, asked: Mapping[int, Tensor], ticket: int) -> Sums:
        """The movements of each shard times these weights, added up as far as they are here."""

        def combine(shard: int) -> Tensor:
            counts = asked[shard] != 0
            return Rows(self.rows[ticket, shard])[counts].combine(asked[shard][counts])

        sums = self._each(combine, asked)
        return climb({(0, shard): own for shard, own in sums.items()}, self.work.shards.number, self.engines)

    def movements(self, asked: Mapping[int, Sequence[int]], ticket: int) -> dict[int, Tensor]:
        """Some of each shard's, written out."""
        return self._each(
            lambda shard: Rows([self.rows[ticket, shard][place] for place in asked[shard]]).tensor(), asked
        )

    def losses(
        self, asked: Mapping[int, Tried], models: Mapping[int, Weights], samples: int | None, number: int
    ) -> dict[int, Tensor]:
        return self._try(asked, models, lambda engine, trial: engine.losses(trial, samples, number))

    def survey(
        self, asked: Mapping[int, Tried], models: Mapping[int, Weights], answer: Callable[[Tensor], Tensor]
    ) -> dict[int, Tensor]:
        return self._try(asked, models, lambda engine, trial: engine.survey(trial, answer)[1])

    def cross_accuracy(self, asked: Mapping[int, Tried], models: Mapping[int, Weights]) -> dict[int, Tensor]:
        return self._try(asked, models, lambda engine, trial: engine.cross_accuracy(trial))

    def _try(
        self,
        asked: Mapping[int, Tried],
        models: Mapping[int, Weights],
        function: Callable[[PoolEngine, ModelTrial], Tensor],
    ) -> dict[int, Tensor]:
        """What clients say to models that they try."""

        def tried(shard: int) -> Tensor:
            clients, kept = asked[shard]
            first = self.work.shards.bounds[shard]
            return function(
                self.engines[shard], ModelTrial(list(models.values()), clients - first, _recall(kept, first))
            )

        return self._each(tried, asked)

    def score(
        self,
        asked: Mapping[int, tuple[Sequence[tuple[int, Ids]], KeptStatistics]],
        models: Mapping[int, Memory],
        on: Samples,
    ) -> dict[int, Scores]:
        """``asked`` are numbers of models and whom they serve."""

        def score(shard: int) -> Scores:
            served, kept = asked[shard]
            first = self.work.shards.bounds[shard]
            own = [(models[number], members - first) for number, members in served]
            return self.engines[shard].score(own, kept=_recall(kept, first), on=on)

        return self._each(score, asked)

    def _each(self, function: Callable[[int], T], shards: Mapping[int, Any]) -> dict[int, T]:
        """On all workers, a shard at a time."""
        each = map if self.workers == 1 else threads(self.workers).map
        return dict(zip(shards, each(function, shards), strict=True))


class Host:
    """A process on a machine, with a Node for every task that it has a part in."""

    def __init__(self, workers: int) -> None:
        self.workers, self.nodes = workers, dict[str, Node]()
        self.read: dict[str, Federation] = {}  # by the task that they are read for, while shards are taken

    def about(self) -> dict[str, str]:
        """What has to be the same everywhere."""
        return versions()

    def open(self, name: str, work: Work) -> None:
        self.nodes[name] = Node(work, self.workers)

    def close(self, name: str) -> None:
        self.nodes.pop(name, None)

    def take(self, name: str, shard: int, data: "Federation | str | Callable[[], Federation]") -> None:
        """A shard of a task: its clients, the name of a task whose shard has the same ones, or where all
        clients are read."""
        node = self.nodes[name]
        if isinstance(data, str):
            data = self.nodes[data].engines[shard].task.data
        elif callable(data):
            if name not in self.read:
                self.read = {name: read_here(data)}
            data = self.read[name].part(node.work.shards.clients(shard))
        node.take(shard, data)

    def ask(
        self,
        name: str,
        what: str,
        asked: Mapping[int, Any],
        facts: Sequence[Any],
        numbers: Sequence[int],
        *models: Any,
    ) -> Any:
        """``what`` is a method of Node. Models come each by itself, with its number: one that is sent to many
        machines is written down once."""
        self.read = {}
        sent = [dict(zip(numbers, models, strict=True))] if what not in ("combine", "movements") else []
        return getattr(self.nodes[name], what)(asked, *sent, *facts)


def read_here(read: Callable[[], T]) -> T:
    """What ``read`` finds on this machine; what it cannot, it says with the machine's name."""
    try:
        return read()
    except (UserError, OSError) as error:
        raise UserError(
            f"on {platform.node()}, {error}: put the data at the same path on all machines of the cluster, "
            "or let them be sent (run.data = 'sent')"
        ) from None


def _recall(kept: KeptStatistics, first: int) -> Recall | None:
    """By the numbers that clients have in their shard."""
    return None if kept is None else lambda client: kept[client + first]


def versions() -> dict[str, str]:
    """What the bytes of results depend on."""
    return {
        "fedcohort": version("fedcohort"),
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "llvmlite": _llvmlite(),
        VECTORS: torch.backends.cpu.get_cpu_capability(),
    }


def _llvmlite() -> str:
    """What compiles kernels for convolutions, where it is there."""
    try:
        return version("llvmlite")
    except PackageNotFoundError:
        return "missing"
