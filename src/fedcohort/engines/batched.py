"""All clients of a round at once, on one device: the engine for a machine with a GPU.

Clients that take equally many steps are trained together: their parameters are rows of one matrix, and
``torch.func.vmap`` turns the gradient of one client into the gradients of all. What does not fit is left to
the pool engine: networks with BatchNorm, dropout or frozen layers, augmented images, objectives that rewrite
the gradient, and evaluation. It gives the reference's results on a CPU; on a GPU it has never been run by
its authors.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedcohort.core.engine import Answer, Order
from fedcohort.core.optimiser import Optimiser
from fedcohort.core.roles import Objective
from fedcohort.core.round.local_training import LocalSteps
from fedcohort.core.task import Task
from fedcohort.engines.lowrank import stacked_maps, step_of
from fedcohort.engines.pool import PoolEngine
from fedcohort.models.flat import Weights

BLOCK = 64  # clients trained together


class BatchedEngine(PoolEngine):
    """Trains clients side by side on ``device``."""

    def __init__(self, task: Task, device: str = "cpu") -> None:
        super().__init__(task)
        self.device = torch.device(device)

    def train(self, objective: Objective, orders: Sequence[Order], number: int) -> list[Answer]:
        model = self.task.model
        mixes = model.num_buffers or model.needs_pairs  # statistics of a batch would count its padding
        special = model.is_random or model.frozen is not None or self.task.augment is not None
        if mixes or special or not objective.affine:
            return super().train(objective, orders, number)
        alike: dict[int, list[tuple[Order, LocalSteps]]] = {}
        able = [order for order in orders if self.size(order)]
        for order in able:
            job = self.job(objective, order, number)
            alike.setdefault(len(job.plan), []).append((order, job))
        answers = {}
        for same in alike.values():
            for start in range(0, len(same), BLOCK):
                block = same[start : start + BLOCK]
                params, traces = (each.cpu() for each in self.descend([job for _, job in block]))
                for (order, job), ended, trace in zip(block, params, traces, strict=True):
                    answers[order.client] = self._answer(order, job, ended, trace)
        return [answers[order.client] for order in able]

    def _answer(self, order: Order, job: LocalSteps, params: Tensor, trace: Tensor) -> Answer:
        """What the client says after steps that were taken elsewhere."""

        def taken(job: LocalSteps, weights: Weights) -> Tensor:
            weights.params.copy_(params)
            return trace

        return self.train_one(order, job, taken)

    def descend(self, jobs: Sequence[LocalSteps]) -> tuple[Tensor, Tensor]:
        """``[K, P]``, ``[K, T]``: where clients of equally many steps arrive, and the loss of each step."""
        params = self._stack([job.begun().params for job in jobs])
        scale, shift = (None if each is None else each[:, 0].to(self.device) for each in stacked_maps(jobs))
        pull = torch.tensor([job.anchor.pull for job in jobs], device=self.device)[:, None]
        nothing = torch.zeros(params.shape[1])
        center, offset, drift = (
            self._stack([nothing if vector is None else vector for vector in vectors])
            for vectors in zip(*(job.anchor[1:] for job in jobs), strict=True)
        )
        slope_at = vmap(grad_and_value(self._loss), in_dims=(0, 0, 0, 0, _axis(scale), _axis(shift)))
        optimiser, traces = Optimiser(jobs[0].local, params), []
        for number in range(len(jobs[0].plan)):
            rows, share = step_of(jobs, number)
            x, y, share = (each.to(self.device) for each in (jobs[0].x[rows], jobs[0].y[rows], share))
            slope, loss = slope_at(params, x, y, share, scale, shift)
            slope = slope + pull * (params - center) + offset
            optimiser.step(params, slope, jobs[0].view.lr)
            params.add_(drift, alpha=jobs[0].view.lr)
            traces.append(loss)
        return params, torch.stack(traces, 1) if traces else torch.zeros(len(jobs), 0)

    def _loss(
        self, params: Tensor, x: Tensor, y: Tensor, share: Tensor, scale: Tensor | None, shift: Tensor | None
    ) -> Tensor:
        """One client's loss on one padded mini-batch."""
        logits = self.task.model.logits(Weights(params, params.new_zeros(0)), x, training=True)
        logits = logits if scale is None else logits * scale
        logits = logits if shift is None else logits + shift
        return F.cross_entropy(logits, y, reduction="none").masked_fill(share == 0, 0) @ share

    def _stack(self, vectors: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(vectors)).to(self.device)


def _axis(value: Tensor | None) -> int | None:
    return None if value is None else 0
