"""The only local training loop: one client, one round. Engines call it; no method writes another.

What an engine may replace is ``descend``, the arithmetic of the steps; what is prepared before and told
after is the same for all.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core import batchnorm
from fedcohort.core.optimiser import Optimiser, reach
from fedcohort.core.profile import Local
from fedcohort.core.records import Anchor, LogitMap, Memory, Trained, View
from fedcohort.core.roles import Objective
from fedcohort.core.roles.optional import Freezes
from fedcohort.data.augment import Augment
from fedcohort.data.federation import take
from fedcohort.models.flat import Flat, Weights
from fedcohort.util.keyed import generator, key_seed

GATHER = 1 << 24  # bytes of examples copied at a time


class LocalSteps(NamedTuple):
    """One client's local steps, ready to be taken."""

    objective: Objective
    model: Flat
    local: Local
    x: Tensor
    y: Tensor
    rows: Tensor | None  # which of x and y are the client's; None: all
    plan: list[Tensor]  # rows of x and y of each mini-batch
    view: View
    anchor: Anchor  # with its center known
    key: tuple[int, int, int]  # (seed, round, client): all that is drawn depends on it, and on nothing else
    augment: Augment | None = None

    def begun(self) -> Weights:
        """Where the steps begin."""
        source = self.view.mine if self.objective.personal else self.view.down
        at = Weights(source["params"], source["buffers"])
        return batchnorm.begun(at, self.view.mine, self.local, self.model, self.key[0])

    def logits(self) -> LogitMap:
        """The objective's change of logits, as compiled steps take it: ``[C]``, single precision."""
        scale, shift = (
            None if each is None else each.float().expand(self.view.counts.shape)
            for each in self.objective.logits(self.view)
        )
        return LogitMap(scale, shift)

    @property
    def frozen(self) -> Tensor | None:
        """[P]: which parameters do not move. None: all do."""
        ours = self.objective.frozen(self.model) if isinstance(self.objective, Freezes) else None
        both = self.model.frozen, ours
        fixed = [own for own in both if own is not None]
        return torch.stack(fixed).any(0) if fixed else None

    def reach(self) -> float:
        return reach(self.local, self.view.lr, len(self.plan), self.anchor.pull)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The mini-batches, with images changed if they are to be; examples of many are copied at once."""
        size = max(1, self.x[0].numel() * self.x.element_size())
        together = max(1, GATHER // (size * self.local.batch))
        draw = generator(*self.key, "augment")
        for start in range(0, len(self.plan), together):
            part = self.plan[start : start + together]
            rows, sizes = torch.cat(part), [len(batch) for batch in part]
            for x, y in zip(take(self.x, rows).split(sizes), self.y[rows].split(sizes), strict=True):
                yield (x if self.augment is None else self.augment(x, draw)), y


Descend = Callable[[LocalSteps, Weights], Tensor]  # moves the weights in place, returns the loss of each step
Gradient = Callable[
    [LocalSteps, Weights, Tensor, Tensor], tuple[Tensor, Tensor]
]  # and the loss, on these examples


def batches(rows: Tensor, steps: int, local: Local, smallest: int, key: torch.Generator) -> list[Tensor]:
    """The rows of each mini-batch: a fresh shuffle per epoch, ``steps`` batches in all.

    A batch below ``smallest`` samples (a single one, for a model with BatchNorm) is left out, and the next
    shuffle gives one instead.
    """
    plan: list[Tensor] = []
    size = len(rows)
    while len(plan) < steps:
        shuffled = rows.index_select(0, torch.randperm(size, generator=key))
        epoch = shuffled.split(local.batch)[: local.batches_per_epoch(size)]
        usable = [batch for batch in epoch if batch.numel() >= smallest]
        if not usable:
            break
        plan += usable
    return plan[:steps]


def prepare(
    objective: Objective,
    model: Flat,
    local: Local,
    x: Tensor,
    y: Tensor,
    view: View,
    key: tuple[int, int, int],
    rows: Tensor | None = None,
    augment: Augment | None = None,
) -> LocalSteps:
    """The steps of a client whose examples are ``x`` and ``y``, or the given ``rows`` of them."""
    anchor = objective.anchor(view)
    if anchor.pull and anchor.center is None:
        anchor = anchor._replace(center=view.down["params"])
    smallest = 2 if model.needs_pairs else 1
    own = torch.arange(len(y)) if rows is None else rows
    plan = batches(own, view.steps, local, smallest, generator(*key, "batch"))
    return LocalSteps(objective, model, local, x, y, rows, plan, view, anchor, key, augment)


def client_round(job: LocalSteps, descend: Descend | None = None) -> tuple[Memory, Memory, Trained]:
    """Trains one client. Returns what goes up, what it remembers, and the outcome."""
    begun = job.begun()
    weights = Weights(begun.params.clone(), begun.buffers.clone())
    with job.model.random_by(key_seed(*job.key, "dropout")):
        trace = (descend or by_autograd)(job, weights)

    def full_gradient(params: Tensor) -> Tensor:
        at = Weights(params, begun.buffers.clone())
        mine = (job.x, job.y) if job.rows is None else (job.x[job.rows], job.y[job.rows])
        with job.model.random_by(key_seed(*job.key, "gradient")):
            return gradient(job, at, *mine)[0]

    trained = Trained(weights, trace, len(job.plan), job.reach(), full_gradient)
    up, mine = job.objective.finish(begun, trained, job.view)
    if job.local.keeps_statistics(job.model):
        mine = {**mine, "buffers": weights.buffers}
    return up, mine, trained


def by_autograd(job: LocalSteps, weights: Weights, slope_at: Gradient | None = None) -> Tensor:
    """The steps as anyone would write them; the judge of every faster way."""
    slope_at = slope_at or gradient
    pull, center, offset, drift = job.anchor
    where = weights.params.device
    optimiser, trace = Optimiser(job.local, weights.params), torch.zeros(len(job.plan), device=where)
    frozen = None if job.frozen is None else job.frozen.to(where)
    before = None if frozen is None else weights.params.clone()
    for number, (x, y) in enumerate(job.batches()):
        slope, trace[number] = slope_at(job, weights, x, y)
        if pull and center is not None:
            slope = slope.add(weights.params - center, alpha=pull)
        if offset is not None:
            slope = slope + offset
        optimiser.step(weights.params, slope, job.view.lr)
        if drift is not None:
            weights.params.add_(drift, alpha=job.view.lr)
        if frozen is not None and before is not None:
            torch.where(frozen, before, weights.params, out=weights.params)
    return trace


def gradient(job: LocalSteps, weights: Weights, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Of the objective's loss on these examples, and that loss."""
    params = weights.params.detach().requires_grad_()
    logits = job.model.logits(Weights(params, weights.buffers), x, training=True)
    loss = job.objective.criterion(logits, y, job.view)
    (slope,) = torch.autograd.grad(loss, params)
    return slope, loss.detach()
