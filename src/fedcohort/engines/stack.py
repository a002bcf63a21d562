"""Linear/ReLU networks by hand: back-propagation whose weight update is part of the gradient's matrix
product.

Autograd writes a gradient, an optimiser reads it again and moves the weights. For a stack of linear layers
the gradient of a layer is ``D.T @ H`` (errors and inputs of the batch), and ``W <- a W - lr D.T @ H`` is
one call. Pull, weight decay and momentum are scalars on the same vectors, so they fit too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedcohort.core.flat import Flat, Weights
from fedcohort.core.optimiser import Optimiser
from fedcohort.core.parts import Objective
from fedcohort.core.train import Job
from fedcohort.engines.unlocked import unlocked


@dataclass(frozen=True)
class Layer:
    """One linear layer and where its weight and bias lie in the flat vector."""

    inputs: int
    outputs: int
    start: int

    @property
    def bias_start(self) -> int:
        return self.start + self.inputs * self.outputs

    def weight(self, vector: Tensor) -> Tensor:
        return vector[self.start : self.bias_start].view(self.outputs, self.inputs)

    def bias(self, vector: Tensor) -> Tensor:
        return vector[self.bias_start : self.bias_start + self.outputs]


class Stack:
    """A network that is Flatten, then linear layers with ReLU between them."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.num_params = sum(layer.outputs * (layer.inputs + 1) for layer in layers)

    @classmethod
    def of(cls, model: Flat) -> "Stack | None":
        """The stack that ``model`` is, or None."""
        module = model.module
        if type(module) is not nn.Sequential:
            return None
        steps = [child for child in module if type(child) is not nn.Flatten]
        linear, between = steps[::2], steps[1::2]
        plain = all(type(child) is nn.Linear and child.bias is not None for child in linear)
        if len(steps) % 2 == 0 or not plain or not all(type(child) is nn.ReLU for child in between):
            return None
        layers, start = [], 0
        for child in linear:
            layers.append(Layer(child.in_features, child.out_features, start))  # type: ignore[arg-type]
            start = layers[-1].bias_start + layers[-1].outputs
        return cls(layers)

    def views(self, vector: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The layers' weights and their biases, inside the vector."""
        layers = self.layers
        return [layer.weight(vector) for layer in layers], [layer.bias(vector) for layer in layers]

    def descend(self, job: Job, weights: Weights) -> Tensor:
        """A client's local steps, in place; the loss of each."""
        weights_of, biases_of = self.views(weights.params)
        update, losses = _Update(self, job, weights.params), []
        scale, shift = job.objective.logits(job.view)
        for x, y in job.batches():
            errors, values, loss = propagate(weights_of, biases_of, x.flatten(1), y, scale, shift)
            update.apply(errors, values)
            losses.append(loss)
        return torch.stack(losses) if losses else torch.zeros(0)


class _Update:
    """Moves the weights by one batch's errors: fused for SGD, through the shared optimiser otherwise."""

    def __init__(self, stack: Stack, job: Job, vector: Tensor) -> None:
        self.local, self.lr, self.vector = job.local, job.view.lr, vector
        self.fused = self.local.optimiser == "sgd" and not self.local.nesterov
        pull, center, offset, self.drift = job.anchor
        self.shrink = pull + (self.local.weight_decay if self.fused else 0.0)
        towards = center * -pull if pull and center is not None else None
        constants = [vector for vector in (towards, offset) if vector is not None]
        self.constant = sum(constants[1:], constants[0]) if constants else None
        self.momentum = torch.zeros_like(vector) if self.local.momentum or not self.fused else None
        self.optimiser = None if self.fused else Optimiser(self.local, vector)
        self.targets = stack.views(vector if self.momentum is None else self.momentum)

    def apply(self, errors: list[Tensor], values: list[Tensor]) -> None:
        """One step of the optimiser, and the drift."""
        self._descend(errors, values)
        if self.drift is not None:
            self.vector.add_(self.drift, alpha=self.lr)

    def _descend(self, errors: list[Tensor], values: list[Tensor]) -> None:
        """The slope is the loss's gradient plus ``shrink * weights + constant``."""
        if self.momentum is None:
            self._add(errors, values, keep=1 - self.lr * self.shrink, scale=-self.lr)
            if self.constant is not None:
                self.vector.add_(self.constant, alpha=-self.lr)
            return
        slope = self.momentum
        self._add(errors, values, keep=self.local.momentum if self.fused else 0.0, scale=1.0)
        if self.shrink:
            slope.add_(self.vector, alpha=self.shrink)
        if self.constant is not None:
            slope.add_(self.constant)
        if self.optimiser is None:
            self.vector.add_(slope, alpha=-self.lr)
        else:
            self.optimiser.step(self.vector, slope, self.lr)

    def _add(self, errors: list[Tensor], values: list[Tensor], keep: float, scale: float) -> None:
        """``target <- keep * target + scale * gradient``, layer by layer."""
        add_products(*self.targets, errors, values, keep, scale)


def softmax_error(
    logits: Tensor, labels: Tensor, share: Tensor, scale: Tensor | None, shift: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradient of the cross-entropy with respect to the logits, and the loss, for any leading axes: the
    last of them is summed, each sample by its ``share``. ``scale`` and ``shift`` are those of LogitMap."""
    if scale is not None:
        logits = logits * scale
    if shift is not None:
        logits = logits + shift
    log, where = torch.log_softmax(logits, -1), labels.unsqueeze(-1)
    right = log.gather(-1, where)
    loss = (right.squeeze(-1) * -share).sum(-1)
    error = log.exp_().scatter_add_(-1, where, torch.full_like(right, -1.0)).mul_(share.unsqueeze(-1))
    return (error if scale is None else error.mul_(scale)), loss


@unlocked
def propagate(
    weights: list[Tensor],
    biases: list[Tensor],
    x: Tensor,
    y: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Forward and backward: the error and the input of every layer, and the mean loss."""
    values, last = [x], len(weights) - 1
    for layer in range(last):
        values.append(torch.addmm(biases[layer], values[layer], weights[layer].t()).relu_())
    logits = torch.addmm(biases[last], values[last], weights[last].t())
    share = torch.full([y.shape[0]], 1.0 / y.shape[0])
    error, loss = softmax_error(logits, y, share, scale, shift)
    errors = [error]
    for layer in range(last, 0, -1):
        error = torch.ops.aten.threshold_backward(error @ weights[layer], values[layer], 0)
        errors.append(error)
    errors.reverse()
    return errors, values, loss


@unlocked
def add_products(
    weights: list[Tensor],
    biases: list[Tensor],
    errors: list[Tensor],
    values: list[Tensor],
    keep: float,
    scale: float,
) -> None:
    """Adds ``scale`` times the gradient to ``keep`` times each weight and bias: one product a layer."""
    for layer in range(len(weights)):
        error = errors[layer]
        weights[layer].addmm_(error.t(), values[layer], beta=keep, alpha=scale)
        if keep != 1:
            biases[layer].mul_(keep)
        biases[layer].add_(error.sum(0), alpha=scale)


def fits(objective: Objective) -> bool:
    """Whether an objective says all it does through ``anchor`` and ``logits``, which this engine
    understands."""
    return objective.affine
