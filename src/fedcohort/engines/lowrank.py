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
from torch.nn.utils.rnn import pad_sequence

from fedcohort.core.parts import LogitMap
from fedcohort.core.profile import Local
from fedcohort.core.rows import Block, Factor, FactoredRow
from fedcohort.core.train import Job
from fedcohort.engines.stack import Stack, softmax_error
from fedcohort.engines.unlocked import unlocked


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

    rows: Tensor  # [K, m] of the examples
    share: Tensor  # [K, m]: 1 / batch size, 0 for padding


def step_of(jobs: Sequence[Job], number: int) -> Step:
    """Step ``number`` of each job; clients that are done are all padding."""
    batches = [job.plan[number] if number < len(job.plan) else job.plan[0][:0] for job in jobs]
    sizes = torch.tensor([len(batch) for batch in batches])[:, None]
    rows = pad_sequence(batches, batch_first=True)
    return Step(rows, (torch.arange(rows.shape[1]) < sizes) / sizes.clamp(min=1))


def train_block(stack: Stack, jobs: Sequence[Job], params: Tensor) -> tuple[Block, list[Tensor]]:
    """All steps of clients that start from ``params``: their movements, and the loss of each step."""
    steps = max(len(job.plan) for job in jobs)
    first = jobs[0]
    coefficients = Coefficients(first.local, first.view.lr, first.anchor.pull, steps)
    weights, biases = stack.views(params)
    batches = [step_of(jobs, number) for number in range(steps)]
    errors, inputs, traces = descend_together(
        weights, biases, first.x.flatten(1), first.y,
        [batch.rows for batch in batches], [batch.share for batch in batches],
        [coefficients.start(number) for number in range(steps)],
        [coefficients.gradients(number).tolist() for number in range(steps)],
        *stacked_maps(jobs),
    )  # fmt: skip
    taken = [len(job.plan) for job in jobs]
    final = {count: coefficients.gradients(count).tolist() for count in set(taken)}
    factors = []
    for number in range(steps):
        much = torch.tensor([final[count][number] if number < count else 0.0 for count in taken])
        for layer, own, values in zip(stack.layers, errors[number], inputs[number], strict=True):
            factors.append(Factor(own.mul_(much[:, None, None]), values, layer.start))
    shrink = torch.tensor([coefficients.start(count) - 1 for count in taken], dtype=params.dtype)
    return Block(factors, params, shrink), [traces[k, :count] for k, count in enumerate(taken)]


@unlocked
def descend_together(
    weights: list[Tensor],
    biases: list[Tensor],
    x: Tensor,
    y: Tensor,
    rows: list[Tensor],
    shares: list[Tensor],
    start: list[float],
    subtracted: list[list[float]],
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[list[list[Tensor]], list[list[Tensor]], Tensor]:
    """All steps of all clients: of each step every layer's errors and inputs, and the losses.

    Before a step, a client still has ``start`` of the common weights, and has ``subtracted`` so much of each
    earlier gradient.
    """
    errors: list[list[Tensor]] = []
    inputs: list[list[Tensor]] = []
    losses = torch.zeros(rows[0].shape[0], len(rows))
    for step in range(len(rows)):
        examples, labels = torch.embedding(x, rows[step]), y[rows[step]]
        new = _step(
            weights, biases, examples, labels, shares[step],
            errors, inputs, start[step], subtracted[step], scale, shift,
        )  # fmt: skip
        errors.append(new[0])
        inputs.append(new[1])
        losses[:, step] = new[2]
    return errors, inputs, losses


def _step(
    weights: list[Tensor],
    biases: list[Tensor],
    x: Tensor,
    y: Tensor,
    share: Tensor,
    past_errors: list[list[Tensor]],
    past_inputs: list[list[Tensor]],
    start: float,
    subtracted: list[float],
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Forward and backward of one mini-batch of every client: each layer's errors and inputs, and the losses.

    The 1 added to a product of inputs: a bias is a weight of a constant input.
    """
    clients, size, last = x.shape[0], x.shape[1], len(weights) - 1
    values = [x]
    for layer in range(last + 1):
        value = values[layer]
        out = torch.addmm(biases[layer], value.flatten(0, 1), weights[layer].t(), beta=start, alpha=start)
        out = out.view(clients, size, -1)
        for step, much in enumerate(subtracted):
            gram = torch.bmm(value, past_inputs[step][layer].transpose(1, 2)).add_(1)
            out.baddbmm_(gram, past_errors[step][layer], alpha=-much)
        values.append(out.relu_() if layer < last else out)
    error, losses = softmax_error(values[-1], y, share, scale, shift)
    errors = [error]
    for layer in range(last, 0, -1):
        back = torch.mm(error.flatten(0, 1), weights[layer])
        if start != 1:
            back.mul_(start)
        back = back.view(clients, size, -1)
        for step, much in enumerate(subtracted):
            gram = torch.bmm(error, past_errors[step][layer].transpose(1, 2))
            back.baddbmm_(gram, past_inputs[step][layer], alpha=-much)
        error = torch.ops.aten.threshold_backward(back, values[layer], 0)
        errors.append(error)
    errors.reverse()
    return errors, values[:-1], losses


def rows_of(block: Block) -> list[FactoredRow]:
    return [FactoredRow(block, client, bool(fine)) for client, fine in enumerate(block.finite)]


def stacked_maps(jobs: Sequence[Job]) -> LogitMap:
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
