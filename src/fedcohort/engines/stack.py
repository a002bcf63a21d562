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
from fedcohort.core.parts import LogitMap, Objective
from fedcohort.core.train import Job

threshold_backward = torch.ops.aten.threshold_backward  # passes a gradient where the activation is positive
MINUS_ONE = torch.tensor(-1.0)


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

    def views(self, vector: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer, inside the vector."""
        return [(layer.weight(vector), layer.bias(vector)) for layer in self.layers]

    def descend(self, job: Job, weights: Weights) -> Tensor:
        """A client's local steps, in place; the loss of each."""
        layers, maps, losses = self.views(weights.params), job.objective.logits(job.view), []
        (*hidden, (last, bias)), back = layers, [weight for weight, _ in layers[:0:-1]]
        update = _Update(self, job, weights.params)
        for x, y in job.batches():
            values = [x.flatten(1)]
            for weight, own in hidden:
                values.append(torch.addmm(own, values[-1], weight.t()).relu_())
            error, loss = softmax_error(torch.addmm(bias, values[-1], last.t()), y, maps)
            losses.append(loss)
            errors = [error]
            for weight, value in zip(back, values[:0:-1], strict=True):
                error = threshold_backward(error @ weight, value, 0)
                errors.append(error)
            update.apply(errors[::-1], values)
        return torch.stack(losses) if losses else torch.zeros(0)


class _Update:
    """Moves the weights by one batch's errors: fused for SGD, through the shared optimiser otherwise."""

    def __init__(self, stack: Stack, job: Job, vector: Tensor) -> None:
        self.local, self.lr, self.vector = job.local, job.view.lr, vector
        self.fused = self.local.optimiser == "sgd" and not self.local.nesterov
        pull, center, offset = job.anchor
        self.shrink = pull + (self.local.weight_decay if self.fused else 0.0)
        towards = center * -pull if pull and center is not None else None
        constants = [vector for vector in (towards, offset) if vector is not None]
        self.constant = sum(constants[1:], constants[0]) if constants else None
        self.momentum = torch.zeros_like(vector) if self.local.momentum or not self.fused else None
        self.optimiser = None if self.fused else Optimiser(self.local, vector)
        self.targets = stack.views(vector if self.momentum is None else self.momentum)

    def apply(self, errors: list[Tensor], values: list[Tensor]) -> None:
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
        for (weight, bias), error, value in zip(self.targets, errors, values, strict=True):
            weight.addmm_(error.t(), value, beta=keep, alpha=scale)
            if keep != 1:
                bias.mul_(keep)
            bias.add_(error.sum(0), alpha=scale)


def softmax_error(logits: Tensor, labels: Tensor, maps: LogitMap) -> tuple[Tensor, Tensor]:
    """The gradient of the mean cross-entropy with respect to the logits, and that mean."""
    return weighted_error(logits, labels, 1 / len(labels), maps)


def weighted_error(
    logits: Tensor, labels: Tensor, share: Tensor | float, maps: LogitMap
) -> tuple[Tensor, Tensor]:
    """The same for any leading axes: the last of them is summed, each sample by its ``share``."""
    scale, shift = maps
    logits = logits if scale is None else logits * scale
    logits = logits if shift is None else logits + shift
    log = torch.log_softmax(logits, -1)
    loss = log.gather(-1, labels[..., None]).squeeze(-1).mul_(-share).sum(-1)
    error = log.exp_().scatter_add_(-1, labels[..., None], MINUS_ONE.expand(*labels.shape, 1))
    error.mul_(share[..., None] if isinstance(share, Tensor) else share)
    return (error if scale is None else error.mul_(scale)), loss


def fits(objective: Objective) -> bool:
    """Whether an objective says all it does through ``anchor`` and ``logits``, which this engine
    understands."""
    return objective.affine
