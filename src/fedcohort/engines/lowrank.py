"""Many small clients at once, without ever forming a client's weights.

After ``t`` steps of a linear optimiser a client's layer is ``b_t W - sum_s c_ts D_s.T @ H_s``: the common
start, and outer products of its own earlier errors and inputs. So the passes through ``W`` are one matrix
product for all clients together, and each client's own part is small batched products with its earlier
samples. Exact up to rounding, for SGD with momentum, weight decay and a pull towards the start; it pays
while a client has few samples.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedcohort.core.parts import LogitMap
from fedcohort.core.profile import Local
from fedcohort.core.rows import Block, Factor, FactoredRow
from fedcohort.core.train import Job
from fedcohort.data.federation import take
from fedcohort.engines.stack import Stack, threshold_backward, weighted_error


class Coefficients:
    """How much of the start and of each step's gradient is in the weights after 0, 1, 2, ... steps."""

    def __init__(self, local: Local, lr: float, pull: float, steps: int) -> None:
        position = torch.zeros(steps + 1, dtype=torch.float64)  # of the start, then of each gradient
        velocity = torch.zeros_like(position)
        position[0] = 1.0
        self.after = [position.clone()]
        for step in range(steps):
            slope = (local.weight_decay + pull) * position
            slope[0] -= pull
            slope[step + 1] += 1.0
            velocity = local.momentum * velocity + slope
            position = position - lr * (slope + local.momentum * velocity if local.nesterov else velocity)
            self.after.append(position.clone())

    def start(self, steps: int) -> float:
        return float(self.after[steps][0])

    def gradients(self, steps: int) -> Tensor:
        """[steps]: what each gradient was subtracted with."""
        return -self.after[steps][1 : steps + 1]


class Step(NamedTuple):
    """One mini-batch of every client in a chunk, padded to the same size."""

    x: Tensor  # [K, m, d]
    y: Tensor  # [K, m]
    share: Tensor  # [K, m]: 1 / batch size, 0 for padding


def gather(jobs: Sequence[Job], number: int) -> Step | None:
    """Step ``number`` of each job; clients that are done are all padding. None when all are."""
    batches = [job.plan[number] if number < len(job.plan) else job.plan[0][:0] for job in jobs]
    sizes = torch.tensor([len(batch) for batch in batches])
    longest = int(sizes.max())
    if not longest:
        return None
    there = torch.arange(longest) < sizes[:, None]
    rows = torch.zeros(len(jobs), longest, dtype=torch.long)
    rows[there] = torch.cat(batches)
    share = there / sizes.clamp(min=1)[:, None]
    flat = rows.flatten()
    x = take(jobs[0].x, flat).flatten(1)
    return Step(x.view(len(jobs), longest, -1), jobs[0].y[flat].view(len(jobs), longest), share)


def train_block(stack: Stack, jobs: Sequence[Job], params: Tensor) -> tuple[Block, list[Tensor]]:
    """All steps of clients that start from ``params``: their movements, and the loss of each step."""
    steps = max(len(job.plan) for job in jobs)
    first = jobs[0]
    coefficients = Coefficients(first.local, first.view.lr, first.anchor.pull, steps)
    maps = _stacked_maps(jobs)
    past: list[list[tuple[Tensor, Tensor]]] = [[] for _ in stack.layers]
    traces = torch.zeros(len(jobs), steps)
    for number in range(steps):
        step = gather(jobs, number)
        assert step is not None
        traces[:, number] = _step(stack, params, step, past, coefficients, number, maps)
    taken = [len(job.plan) for job in jobs]
    final = {count: coefficients.gradients(count).tolist() for count in set(taken)}
    factors = []
    for number in range(steps):
        scale = torch.tensor([final[count][number] if number < count else 0.0 for count in taken])
        for layer, pairs in zip(stack.layers, past, strict=True):
            errors, inputs = pairs[number]
            factors.append(Factor(errors.mul_(scale[:, None, None]), inputs, layer.start))
    shrink = torch.tensor([coefficients.start(count) - 1 for count in taken], dtype=params.dtype)
    return Block(factors, params, shrink), [traces[k, :count] for k, count in enumerate(taken)]


def _step(
    stack: Stack,
    params: Tensor,
    step: Step,
    past: list[list[tuple[Tensor, Tensor]]],
    coefficients: Coefficients,
    number: int,
    maps: LogitMap,
) -> Tensor:
    """Forward and backward of one mini-batch of every client; remembers its errors and inputs."""
    clients, size, _ = step.x.shape
    start, weigh = coefficients.start(number), coefficients.gradients(number).float()
    values, layers = [step.x], stack.layers
    for position, layer in enumerate(layers):
        value = values[-1]
        out = torch.addmm(
            layer.bias(params), value.flatten(0, 1), layer.weight(params).t(), beta=start, alpha=start
        )
        out = out.view(clients, size, -1)
        for (errors, inputs), weight in zip(past[position], weigh.tolist(), strict=True):
            gram = torch.bmm(value, inputs.transpose(1, 2)).add_(
                1
            )  # 1: the bias is a weight of a constant input
            out.baddbmm_(gram, errors, alpha=-weight)
        values.append(out.relu_() if position < len(layers) - 1 else out)
    error, losses = weighted_error(values.pop(), step.y, step.share, maps)
    found = [error]
    for position in range(len(layers) - 1, 0, -1):
        back = torch.mm(error.flatten(0, 1), layers[position].weight(params))
        back = (back if start == 1 else back.mul_(start)).view(clients, size, -1)
        for (errors, inputs), weight in zip(past[position], weigh.tolist(), strict=True):
            back.baddbmm_(torch.bmm(error, errors.transpose(1, 2)), inputs, alpha=-weight)
        error = threshold_backward(back, values[position], 0)
        found.append(error)
    for position, error in enumerate(reversed(found)):
        past[position].append((error, values[position]))
    return losses


def rows_of(block: Block) -> list[FactoredRow]:
    return [FactoredRow(block, client, bool(fine)) for client, fine in enumerate(block.finite)]


def _stacked_maps(jobs: Sequence[Job]) -> LogitMap:
    """The clients' logit maps as ``[K, 1, C]``, or nothing when nobody has one."""
    maps = [job.objective.logits(job.view) for job in jobs]
    stacked: list[Tensor | None] = []
    for values, neutral in zip(zip(*maps, strict=True), (1.0, 0.0), strict=True):
        known = next((value for value in values if value is not None), None)
        if known is None:
            stacked.append(None)
            continue
        filled = [torch.full_like(known, neutral) if value is None else value for value in values]
        stacked.append(torch.stack(filled)[:, None])
    return LogitMap(*stacked)
