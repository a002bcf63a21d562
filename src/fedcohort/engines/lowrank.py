"""Many small clients at once, without ever forming a client's weights.

After ``t`` steps of a linear optimiser a client's layer is ``b_t W - sum_s c_ts D_s.T @ H_s``: the common
start, and outer products of its own earlier errors and inputs. So the passes through ``W`` are one matrix
product for all clients together, and each client's own part is small batched products with its earlier
samples. Exact up to rounding, for SGD with momentum, weight decay and a pull towards the start; it pays
while a client has few samples.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedcohort.core.deltas import Factor, FactoredBlock
from fedcohort.core.profile import Local
from fedcohort.core.records import LogitMap
from fedcohort.core.round.local_training import LocalSteps
from fedcohort.engines.chain import Chain, LayerKind, softmax_error
from fedcohort.engines.torchscript import unlocked


@lru_cache
def coefficients(local: Local, lr: float, pull: float, steps: int) -> Tensor:
    """``[T+1, T+1]``: how much of the start, and then of each step's gradient, is in the weights after 0, 1,
    2, ... steps. Gradients are subtracted, so theirs are below zero."""
    position = torch.zeros(steps + 1, dtype=torch.float64)
    velocity = torch.zeros_like(position)
    position[0] = 1.0
    after = [position]
    for step in range(steps):
        slope = (local.weight_decay + pull) * position
        slope[0] -= pull
        slope[step + 1] += 1.0
        velocity = local.momentum * velocity + slope
        position = position - lr * (slope + local.momentum * velocity if local.nesterov else velocity)
        after.append(position)
    return torch.stack(after).float()  # beyond what a weight can hold it is infinite, as the weight would be


class Step(NamedTuple):
    """One mini-batch of every client in a block, padded to the same size."""

    rows: Tensor  # [K, m] of the examples
    share: Tensor  # [K, m]: 1 / batch size, 0 for padding


def step_of(jobs: Sequence[LocalSteps], number: int) -> Step:
    """Step ``number`` of each job; clients that are done are all padding.

    A client is padded with an example of its own: another's might be broken, and even 0 times that is.
    """
    batches = [job.plan[number] if number < len(job.plan) else job.plan[0][:0] for job in jobs]
    sizes = torch.tensor([batch.numel() for batch in batches])[:, None]
    rows = pad_sequence(batches, batch_first=True)
    real = torch.arange(rows.shape[1]) < sizes
    if not real.all():
        own = [(batch if len(batch) else job.plan[0])[:1] for batch, job in zip(batches, jobs, strict=True)]
        rows = torch.where(real, rows, torch.stack(own))
    return Step(rows, real / sizes.clamp(min=1))


class Lockstep(NamedTuple):
    """The steps of many clients side by side, ready to be taken."""

    x: Tensor
    y: Tensor
    steps: list[Step]
    after: Tensor  # coefficients
    maps: LogitMap  # stacked
    taken: list[int]  # steps of each client

    @classmethod
    def of(cls, jobs: Sequence[LocalSteps]) -> "Lockstep":
        first, taken = jobs[0], [len(job.plan) for job in jobs]
        steps = [step_of(jobs, number) for number in range(max(taken))]
        after = coefficients(first.local, first.view.lr, first.anchor.pull, max(taken))
        return cls(first.x.flatten(1), first.y, steps, after, stacked_maps(jobs), taken)

    def of_samples(self, values: Sequence[Tensor]) -> Tensor:
        """``[n]``: each step's values, one per client, repeated for each of the client's samples."""
        pairs = zip(values, self.steps, strict=True)
        return torch.cat([own[:, None].expand_as(step.rows).flatten() for own, step in pairs])


def train_block(stack: Chain, lockstep: Lockstep, params: Tensor) -> tuple[FactoredBlock, list[Tensor]]:
    """All steps of clients that start from ``params``: their movements, and the loss of each step."""
    x, y, steps, after, maps, taken = lockstep
    weights, biases = stack.views(params)
    errors, inputs, traces = descend_together(
        stack.kinds, weights, biases, x, y, [step.rows for step in steps], [step.share for step in steps],
        after.tolist(), *maps,
    )  # fmt: skip
    starts = [layer.start for layer in stack.layers]
    factors = [Factor(*each) for each in zip(errors, inputs, starts, strict=True)]
    clients, ends = torch.arange(len(taken)), after[taken]
    owner = lockstep.of_samples([clients] * len(steps))
    much = lockstep.of_samples(ends[:, 1:].unbind(1))
    block = FactoredBlock(factors, owner, much, params, ends[:, 0] - 1)
    return block, [traces[client, :count] for client, count in enumerate(taken)]


@unlocked
def descend_together(
    kinds: list[LayerKind],
    weights: list[Tensor],
    biases: list[Tensor],
    x: Tensor,
    y: Tensor,
    rows: list[Tensor],
    shares: list[Tensor],
    after: list[list[float]],
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """All steps of all clients: every layer's errors and inputs, a row for each sample, and the losses.

    Samples are in the order of steps, then of clients; ``after`` are the coefficients.
    """
    every = torch.cat([each.flatten() for each in rows])
    values, errors = [torch.embedding(x, every)], torch.jit.annotate(list[Tensor], [])
    for weight in weights:
        values.append(torch.empty(every.shape[0], weight.shape[0]))  # inputs of the next layer, or logits
        errors.append(torch.empty_like(values[-1]))
    # The first layer's inputs are known, so its product with the common weights is one for all steps.
    torch.addmm(biases[0], values[0], weights[0].t(), out=values[1])
    seen, slopes = [by_step(value, rows) for value in values], [by_step(error, rows) for error in errors]
    losses = torch.jit.annotate(list[Tensor], [])
    for step, share in enumerate(shares):
        forward(kinds, weights, biases, seen, slopes, step, after[step])
        error, loss = softmax_error(seen[-1][step], y[rows[step]], share, scale, shift)
        slopes[-1][step].copy_(error)
        backward(kinds, weights, seen, slopes, step, after[step])
        losses.append((loss.masked_fill(share == 0, 0) * share).sum(1))
    return errors, values[:-1], torch.stack(losses, 1)


def by_step(column: Tensor, rows: list[Tensor]) -> list[Tensor]:
    """``[K, m, width]`` of each step, inside the column of all samples."""
    parts = column.split([each.numel() for each in rows])
    return [part.view(each.shape[0], each.shape[1], -1) for part, each in zip(parts, rows)]  # noqa: B905


def forward(
    kinds: list[LayerKind],
    weights: list[Tensor],
    biases: list[Tensor],
    values: list[list[Tensor]],
    errors: list[list[Tensor]],
    step: int,
    held: list[float],
) -> None:
    """Each layer's outputs for every client's mini-batch, into their place in ``values``.

    ``held`` is how much of the common weights, and of each earlier gradient, is in a client's weights.

    The 1 added to a product of inputs: a bias is a weight of a constant input.
    """
    for layer, weight in enumerate(weights):
        value, out = values[layer][step], values[layer + 1][step]
        if layer > 0:
            torch.addmm(biases[layer], value.flatten(0, 1), weight.t(), out=out.flatten(0, 1))
        if held[0] != 1:
            out.mul_(held[0])
        for earlier in range(step):
            gram = torch.bmm(value, values[layer][earlier].transpose(1, 2)).add_(1)
            out.baddbmm_(gram, errors[layer][earlier], alpha=held[1 + earlier])
        if kinds[layer].cuts:
            out.relu_()


def backward(
    kinds: list[LayerKind],
    weights: list[Tensor],
    values: list[list[Tensor]],
    errors: list[list[Tensor]],
    step: int,
    held: list[float],
) -> None:
    """From the error of the answer those of all layers, into their place in ``errors``."""
    for layer in range(len(weights) - 1, -1, -1):
        error = errors[layer][step]
        if kinds[layer].cuts:
            torch.ops.aten.threshold_backward(error, values[layer + 1][step], 0, grad_input=error)
        if layer == 0:
            break
        back = errors[layer - 1][step]
        torch.mm(error.flatten(0, 1), weights[layer], out=back.flatten(0, 1))
        if held[0] != 1:
            back.mul_(held[0])
        for earlier in range(step):
            gram = torch.bmm(error, errors[layer][earlier].transpose(1, 2))
            back.baddbmm_(gram, values[layer][earlier], alpha=held[1 + earlier])


def stacked_maps(jobs: Sequence[LocalSteps]) -> LogitMap:
    """The clients' logit maps as ``[K, 1, C]``, or nothing when nobody has one."""
    maps = [job.logits() for job in jobs]
    stacked: list[Tensor | None] = []
    for values, neutral in zip(zip(*maps, strict=True), (1.0, 0.0), strict=True):
        known = next((value for value in values if value is not None), None)
        if known is None:
            stacked.append(None)
            continue
        filled = [torch.full_like(known, neutral) if value is None else value for value in values]
        stacked.append(torch.stack(filled)[:, None])
    return LogitMap(*stacked)
