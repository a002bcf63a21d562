"""The default engine: one single-threaded worker per core, and the fastest exact way to take each client's
steps.

Workers are threads: PyTorch computes outside the interpreter lock, and threads share data, weights and
answers without copies. Nothing depends on how many there are: each client's steps are its own, many small
clients are always cut into the same blocks, and answers are combined in the order of clients.

How a client's steps are taken is decided by what they are, never by the user:

- any network: autograd on a module whose tensors are views of the flat vector;
- chains of convolutions, max-pooling, ReLU and linear layers: back-propagation by hand, the update inside
  the matrix product (:mod:`.chain`);
- those with convolutions, also with BatchNorm and dropout: the same by kernels written for the network and
  compiled (:mod:`.vector`);
- many small clients on linear layers: all of them together, without forming their weights (:mod:`.lowrank`).
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import TypeVar

import torch
from torch import Tensor

from fedcohort.core.engine import Answer, ModelTrial, Order
from fedcohort.core.records import Ids, Memory
from fedcohort.core.roles import Objective
from fedcohort.core.round.local_training import LocalSteps, by_autograd
from fedcohort.core.task import Task
from fedcohort.core.uploads import transformed
from fedcohort.data.federation import Split
from fedcohort.engines import vector
from fedcohort.engines.chain import Chain
from fedcohort.engines.kernels import speed_up
from fedcohort.engines.lowrank import Lockstep, train_block
from fedcohort.engines.malloc import keep_freed_memory
from fedcohort.engines.reference import Predicted, ReferenceEngine, predict
from fedcohort.models.flat import Flat, Weights
from fedcohort.util.cpu import usable_cores

A = TypeVar("A")
B = TypeVar("B")

CORES = usable_cores()  # processes that share a machine each use some of them
EVALUATE = 1024  # examples that a worker evaluates before it takes others
BLOCK = 32  # clients trained together


class PoolEngine(ReferenceEngine):
    """Trains and evaluates on all cores of this machine."""

    def __init__(self, task: Task, workers: int | None = None) -> None:
        super().__init__(task)
        torch.set_num_threads(1)  # parallel over clients, not inside an operation; workers do the same
        keep_freed_memory()
        # Some layers draw from a generator that all threads share: such models stay with one worker.
        self.asked = 1 if task.model.draws_globally else workers
        self.chain = Chain.of(task.model)
        self.own = threading.local()

    @property
    def pool(self) -> ThreadPoolExecutor | None:
        """The workers; how many there are may change while a run goes on."""
        workers = self.asked or CORES
        return threads(workers) if workers > 1 else None

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        each = map if self.pool is None else self.pool.map
        done = each(lambda work: work(), self._work(objective, orders, number))
        answers = [answer for some in done for answer in some]
        place = {order.client: position for position, order in enumerate(orders)}
        return sorted(answers, key=lambda answer: place[answer.client])

    def _work(
        self, objective: Objective, orders: Sequence[Order], number: int
    ) -> Iterator[Callable[[], list[Answer]]]:
        """What workers do in a round. The longest go first, so that nobody is left with one at the end.

        Blocks are prepared here, while workers train earlier ones: for a small client that is more Python
        than arithmetic, and workers would only wait for each other's turn.
        """
        together, alone = self._divide(objective, [order for order in orders if self.size(order)])
        for some in together:
            jobs = [self.job(objective, order, number) for order in some]
            yield partial(self._train_block, some, jobs, Lockstep.of(jobs))
        for order in sorted(alone, key=lambda order: -self._steps(order)):
            yield partial(self._train_alone, objective, order, number)

    def _divide(self, objective: Objective, orders: Sequence[Order]) -> tuple[list[list[Order]], list[Order]]:
        """Blocks of small clients that start from the same model, and those better trained one by one."""
        if self.chain is None or not self.chain.is_linear or not self._is_linear(objective, orders):
            return [], list(orders)
        alike: dict[int, list[Order]] = {}
        alone = []
        for order in orders:
            if is_small(self.chain, self.size(order), self._steps(order), order.budget.batch):
                alike.setdefault(id(order.down), []).append(order)
            else:
                alone.append(order)
        blocks = []
        for same in alike.values():
            same = sorted(same, key=lambda order: (self._steps(order), self.size(order)))
            count = -(-len(same) // BLOCK)
            ends = [round(len(same) * end / count) for end in range(count + 1)]
            blocks += [same[start:end] for start, end in pairwise(ends)]
        few = [block[0] for block in blocks if len(block) == 1]
        return [block for block in blocks if len(block) > 1], alone + few

    def _steps(self, order: Order) -> int:
        return order.budget.steps_for(self.size(order))

    def _is_linear(self, objective: Objective, orders: Sequence[Order]) -> bool:
        """Whether all start from the model that was sent, only add gradients of unchanged examples and are
        pulled back alike."""
        usual = not (objective.personal or objective.has_own("finish"))
        plain = objective.affine and self.task.local.optimiser == "sgd" and not self.task.augment
        if not usual or not plain:
            return False
        if not objective.has_own("anchor"):
            return True
        anchors = [objective.anchor(self.view(order)) for order in orders]
        free = all(vector is None for anchor in anchors for vector in anchor[1:])
        return free and len({anchor.pull for anchor in anchors}) == 1

    def _train_alone(self, objective: Objective, order: Order, number: int) -> list[Answer]:
        return [self._train_job(order, self.job(objective, order, number))]

    def _train_job(self, order: Order, job: LocalSteps) -> Answer:
        return self.train_one(order, job._replace(model=self._model()), self._take_steps)

    def _take_steps(self, job: LocalSteps, weights: Weights) -> Tensor:
        """The client's steps in the fastest way that there is."""
        if self.chain is None or not job.objective.affine:
            return self._by_module(job, weights)
        program = vector.program_for(self.chain, tuple(job.x.shape[1:]))
        if program is not None and program.takes(job):
            trace = program.descend(job, weights)
            if trace is not None:
                return trace
        by_hand = self.chain.is_plain and job.augment is None
        return (self.chain.descend if by_hand else self._by_module)(job, weights)

    def _train_block(
        self, orders: Sequence[Order], jobs: Sequence[LocalSteps], lockstep: Lockstep
    ) -> list[Answer]:
        assert self.chain is not None  # noqa: S101  # blocks are made with it
        block, traces = train_block(self.chain, lockstep, orders[0].down["params"])
        block = block._replace(each=self._map)
        answers = []
        for order, row, trace, job in zip(orders, block.rows(), traces, jobs, strict=True):
            if row is None:  # out of range here; by itself it may just be within
                answers.append(self._train_job(order, job))
                continue
            up: Memory = {"delta": row}  # type: ignore[dict-item]  # a tensor in all but name
            steps, buffers = len(job.plan), order.down["buffers"]
            probes: Memory = {}
            if order.probes and job.rows is not None:
                trained = Weights(order.down["params"] + row.tensor(), buffers)
                probes = self.probe(order, job.rows, trained, self._model())
            up, mine = transformed(order.transforms, up, order.mine, job.view)
            told = steps, job.reach(), probes, job.view.size
            answers.append(Answer(order.client, up, mine, buffers, trace, *told))
        return answers

    def _model(self) -> Flat:
        """This worker's own copy of the network."""
        if not hasattr(self.own, "model"):
            model = self.task.model
            self.own.model = Flat(lambda: speed_up(model.build()), model.draws_globally)
        return self.own.model

    def _by_module(self, job: LocalSteps, weights: Weights) -> Tensor:
        module = job.model.bind(weights)

        def gradient(job: LocalSteps, weights: Weights, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            loss = job.objective.criterion(module(x), y, job.view)
            slopes = torch.autograd.grad(loss, list(module.parameters()), materialize_grads=True)
            return torch.cat([slope.reshape(-1) for slope in slopes]), loss.detach()

        return by_autograd(job, weights, gradient)

    def losses(self, trial: ModelTrial, samples: int | None = None, number: int = 0) -> Tensor:
        if trial.kept is not None:  # a model for each client
            return super().losses(trial, samples, number)
        train, rows = self.task.data.train, self.polled_rows(trial.clients, samples, number)
        losses = self.predict(trial.models[0], train, torch.cat(rows)).loss
        return torch.stack([part.mean() for part in losses.split([len(own) for own in rows])])

    def survey(self, trial: ModelTrial, answer: Callable[[Tensor], Tensor]) -> tuple[Ids, Tensor]:
        if trial.kept is not None:
            return super().survey(trial, answer)
        train = self.task.data.train
        rows = [train.rows(client) for client in trial.clients.tolist()]
        asked = [(model, torch.cat(rows)) for model in trial.models]
        losses = torch.stack([own.loss for own in self.predict_each(asked, train)])
        told = [answer(part) for part in losses.split([len(own) for own in rows], 1)]
        return trial.clients, torch.stack(told)

    def cross_accuracy(self, trial: ModelTrial) -> Tensor:
        if trial.kept is not None:
            return super().cross_accuracy(trial)
        held = self.task.data.validation
        rows = [held.rows(client) for client in trial.clients.tolist()]
        every, sizes = torch.cat(rows), [len(own) for own in rows]
        asked = [(model, every) for model in trial.models]
        guesses = torch.stack([own.said for own in self.predict_each(asked, held)])
        right = (guesses == held.y[every]).float()
        return torch.stack([part.mean(1) for part in right.split(sizes, 1)], 1)

    def predict(self, weights: Weights, split: Split, rows: Tensor) -> Predicted:
        return self.predict_each([(weights, rows)], split)[0]

    def predict_each(self, models: Sequence[tuple[Weights, Tensor]], split: Split) -> list[Predicted]:
        """The rows of all models are cut into pieces, which all workers share."""
        cut = [rows.split(EVALUATE) for _, rows in models]
        pieces = [(weights, rows) for (weights, _), own in zip(models, cut, strict=True) for rows in own]
        done = iter(self._map(lambda each: predict(partial(self._answers, each[0]), split, each[1]), pieces))
        return [Predicted.joined([next(done) for _ in own]) for own in cut]

    def _answers(self, weights: Weights, x: Tensor) -> Tensor:
        """The network's outputs in the fastest way that there is."""
        if self.chain is not None and self.chain.is_plain:
            program = vector.program_for(self.chain, tuple(x.shape[1:]))
            compiled = None if program is None else program.answers(weights, x)
            if compiled is not None:
                return compiled
        return self._model().answers(weights, x)

    def _map(self, function: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """In the order of ``items``, on all workers."""
        if self.pool is None or len(items) < 2:
            return [function(item) for item in items]
        return list(self.pool.map(function, items))


@cache
def threads(count: int) -> ThreadPoolExecutor:
    """The workers of this process: runs that go on at the same time share them."""
    return ThreadPoolExecutor(count, "fedcohort", initializer=torch.set_num_threads, initargs=(1,))


def is_small(stack: Chain, size: int, steps: int, batch: int) -> bool:
    """Whether the common passes save more than a client's products with its own earlier samples cost.

    Alone, a client costs its multiplications, a fixed time per step, and several passes over the parameters
    (copy, difference, average). In a block it costs the same multiplications plus, for each layer, products
    of every sample with all samples of earlier steps, and its part of the calls that start them. Times are
    nanoseconds on one core; only their ratio matters.
    """
    seen = min(steps * batch, max(1, steps) * size)
    earlier = seen * max(0, seen - batch) / 2
    widths = sum(sum(layer.shape) for layer in stack.layers)
    extra = earlier * widths * 4 / 30  # batched products run at about 30 GFLOP/s
    extra += steps * (steps - 1) / 2 * len(stack.layers) * 4 * 10_000 / BLOCK
    alone = steps * 60_000 + stack.num_params * 4 * 5 / 10  # dispatch; 5 passes at 10 GB/s
    return extra < alone
