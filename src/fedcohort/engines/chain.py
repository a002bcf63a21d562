"""Chains of convolutions, pooling, ReLU and linear layers by hand: one compiled call for all of a client's
steps, whose weight update is part of the gradient's matrix product.

Autograd writes a gradient, an optimiser reads it again and moves the weights. For a linear layer the gradient
is ``D.T @ H`` (errors and inputs of the batch), and ``W <- a W - lr D.T @ H`` is one call. Pull, weight decay
and momentum are scalars on the same vectors, so they fit too.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedcohort.core.optimiser import rule
from fedcohort.core.round.local_training import LocalSteps
from fedcohort.engines.kernels import halves, pool, unpool
from fedcohort.engines.torchscript import unlocked
from fedcohort.models.flat import Flat, OwnDropout, Weights
from fedcohort.util.descent import Rule, first_memory, take_step


class LayerKind(NamedTuple):
    """What a layer does to its input, in a form that can be compiled."""

    convolves: bool = False  # else it is linear
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    pools: bool = False  # to the largest of each 2x2 square
    cuts: bool = False  # ReLU; before or after pooling is the same


@dataclass(frozen=True)
class Norm:
    """BatchNorm. Its weight and bias follow the layer's in the flat vector."""

    start: int  # of its running mean among the buffers; variance and count follow
    eps: float
    momentum: float


@dataclass(frozen=True)
class Tail:
    """What may come behind a layer, beside what its kind says: BatchNorm, then ReLU and pooling once more,
    then dropout. Only compiled kernels know it (:mod:`.vector`)."""

    norm: Norm | None = None
    pools: bool = False
    cuts: bool = False
    drops: float = 0.0  # of the outputs


@dataclass(frozen=True)
class Layer:
    """One linear layer or convolution, and where its weight and bias lie in the flat vector."""

    shape: tuple[int, ...]  # of the weight; its first axis is the outputs'
    start: int
    kind: LayerKind
    tail: Tail | None = None

    @property
    def end(self) -> int:
        return self.start + sum(map(prod, self.shapes))

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of weight and bias, and of BatchNorm's."""
        outputs = self.shape[:1]
        return [self.shape, outputs] + [outputs] * (2 if self.tail and self.tail.norm else 0)

    def parts(self, vector: Tensor) -> list[Tensor]:
        """These, inside the flat vector."""
        parts = vector[self.start : self.end].split([prod(shape) for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def followed_by(self, child: nn.Module, buffers: int) -> "Layer | None":
        """With what ``child`` does behind it, whose buffers would start there; None where it is something
        else."""
        kind, tail = self.kind, self.tail or Tail()
        now = tail if tail.norm else kind  # before or behind BatchNorm
        if tail.drops:
            return None
        if type(child) is nn.ReLU and not now.cuts:
            return self._then(True, now.pools)
        if type(child) is nn.MaxPool2d and halves(child) and kind.convolves and not now.pools:
            return self._then(now.cuts, True)
        if isinstance(child, nn.BatchNorm1d | nn.BatchNorm2d) and tail.norm is None:
            fits = type(child) is (nn.BatchNorm2d if kind.convolves else nn.BatchNorm1d)
            fits = fits and child.num_features == self.shape[0]
            if not (fits and child.affine and child.track_running_stats) or child.momentum is None:
                return None
            return replace(self, tail=Tail(Norm(buffers, child.eps, child.momentum)))
        if type(child) is OwnDropout:
            return replace(self, tail=replace(tail, drops=child.p)) if child.p else self
        return None

    def _then(self, cuts: bool, pools: bool) -> "Layer":
        if self.tail is None:
            return replace(self, kind=self.kind._replace(cuts=cuts, pools=pools))
        return replace(self, tail=replace(self.tail, cuts=cuts, pools=pools))


class Chain:
    """A network that is a chain of such layers."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers, self.num_params = layers, layers[-1].end
        self.kinds = [layer.kind for layer in layers]
        self.convolves = any(kind.convolves for kind in self.kinds)
        self.is_plain = all(layer.tail is None for layer in layers)
        self.is_linear = self.is_plain and not self.convolves

    @classmethod
    def of(cls, model: Flat) -> "Chain | None":
        """The chain that ``model`` is, or None."""
        if type(model.module) is not nn.Sequential or any(map(_is_hooked, model.module.modules())):
            return None
        if model.frozen is not None:
            return None
        layers: list[Layer] = []
        flat, buffers = True, 0  # the next is given a vector, or an image that a first linear layer flattens
        for child in model.module:
            kind = _kind(child)
            after_linear = bool(layers) and not layers[-1].kind.convolves
            if kind is not None and (not after_linear if kind.convolves else flat):
                shape, start = tuple(child.get_parameter("weight").shape), layers[-1].end if layers else 0
                if after_linear and shape[1] != layers[-1].shape[0]:  # it reads an example part by part
                    return None
                layers.append(Layer(shape, start, kind))
                flat = not kind.convolves
            elif type(child) is nn.Flatten and (child.start_dim, child.end_dim) == (1, -1):
                flat = True
            else:
                longer = layers[-1].followed_by(child, buffers) if layers else None
                if longer is None:
                    return None
                layers[-1] = longer
            buffers += sum(buffer.numel() for buffer in child.buffers())
        if not layers or layers[-1].kind.convolves or layers[-1].tail:  # the last makes logits
            return None
        if not flat or layers[-1].end != model.num_params:  # one layer in two places
            return None
        return cls(layers) if buffers == model.num_buffers else None

    def views(self, vector: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The layers' weights and their biases, inside the vector."""
        parts = [layer.parts(vector) for layer in self.layers]
        return [each[0] for each in parts], [each[1] for each in parts]

    def descend(self, job: LocalSteps, weights: Weights) -> Tensor:
        """A client's local steps, in place; the loss of each."""
        vector, local = weights.params, job.local
        pull, center, offset, drift = job.anchor
        straight = local.optimiser == "sgd" and not (local.nesterov and local.momentum)
        towards = center * -pull if straight and pull and center is not None else None
        constants = [each for each in (towards, offset) if each is not None]
        constant = sum(constants[1:], constants[0]) if constants else None
        shrink = pull + local.weight_decay if straight else pull
        memory = [] if straight else first_memory(rule(local, job.view.lr), vector)
        slope = None if straight and not local.momentum else torch.zeros_like(vector)
        return descend(
            self.kinds, *self.views(vector), *self.views(vector if slope is None else slope),
            vector, slope, memory, job.x, job.y, job.plan, *job.logits(),
            rule(local, job.view.lr), shrink, None if straight else center, constant, drift,
        )  # fmt: skip


def _is_hooked(layer: nn.Module) -> bool:
    """Whether it does more than its kind says, such as normalising its weight first."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def _kind(layer: nn.Module) -> LayerKind | None:
    """Of a linear layer or a plain convolution."""
    if type(layer) is nn.Linear and layer.bias is not None:
        return LayerKind()
    if type(layer) is not nn.Conv2d or layer.bias is None or isinstance(layer.padding, str):
        return None
    plain = layer.padding_mode == "zeros" and layer.groups == 1 and layer.dilation == (1, 1)
    return LayerKind(True, layer.stride, layer.padding) if plain else None  # type: ignore[arg-type]


def softmax_error(
    logits: Tensor, labels: Tensor, share: Tensor, scale: Tensor | None, shift: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The gradient of the cross-entropy with respect to the logits, for any leading axes, and the loss of
    each sample. Gradients count by their sample's ``share``; ``scale`` and ``shift`` are a LogitMap's."""
    if scale is not None:
        logits = logits * scale
    if shift is not None:
        logits = logits + shift
    log, right = torch.log_softmax(logits.flatten(0, -2), 1), labels.flatten()
    # PyTorch's own kernels; 0 stands for no reduction, -100 for a label that does not count.
    losses, total = torch.ops.aten.nll_loss_forward(log, right, None, 0, -100)
    error = torch.ops.aten.nll_loss_backward(share.flatten(), log, right, None, 0, -100, total)
    error = torch.ops.aten._log_softmax_backward_data(error, log, 1, log.dtype).view_as(logits)
    return (error if scale is None else error.mul_(scale)), losses.view_as(labels)


@unlocked
def descend(
    kinds: list[LayerKind],
    weights: list[Tensor],
    biases: list[Tensor],
    slope_weights: list[Tensor],
    slope_biases: list[Tensor],
    vector: Tensor,
    slope: Tensor | None,
    memory: list[Tensor],
    x: Tensor,
    y: Tensor,
    plan: list[Tensor],
    scale: Tensor | None,
    shift: Tensor | None,
    rule: Rule,
    shrink: float,
    center: Tensor | None,
    constant: Tensor | None,
    drift: Tensor | None,
) -> Tensor:
    """All steps of a client on ``vector``, whose parts are ``weights`` and ``biases``; the loss of each.

    The slope is the loss's gradient plus ``shrink * (vector - center) + constant``; ``drift`` is added after
    each step. Plain SGD puts the products straight into the weights, SGD with momentum into its velocity,
    which is then what ``slope`` is; other rules have a ``memory`` and take their step from a slope made anew.
    """
    table, losses = x.flatten(1), torch.jit.annotate(list[Tensor], [])
    for step, rows in enumerate(plan):
        examples = torch.embedding(table, rows)
        if kinds[0].convolves:
            examples = examples.unflatten(1, x.shape[1:])
        errors, inputs, loss = propagate(kinds, weights, biases, examples, y[rows], scale, shift)
        losses.append(loss)
        if slope is None:
            add_slopes(kinds, weights, biases, errors, inputs, 1 - rule.lr * shrink, -rule.lr)
            if constant is not None:
                vector.add_(constant, alpha=-rule.lr)
        else:
            keep = 0.0 if len(memory) > 0 else rule.momentum
            add_slopes(kinds, slope_weights, slope_biases, errors, inputs, keep, 1.0)
            if shrink != 0:  # the difference first: Adam's steps do not get smaller with a small slope
                slope.add_(vector if center is None else vector - center, alpha=shrink)
            if constant is not None:
                slope.add_(constant)
            if len(memory) > 0:
                take_step(rule, vector, slope, memory, step + 1)
            else:
                vector.add_(slope, alpha=-rule.lr)
        if drift is not None:
            vector.add_(drift, alpha=rule.lr)
    return torch.stack(losses)


def propagate(
    kinds: list[LayerKind],
    weights: list[Tensor],
    biases: list[Tensor],
    x: Tensor,
    y: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Forward and backward: the error and the input of every layer, and the mean loss."""
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    pooled: list[tuple[Tensor, Tensor]] = []
    for layer, kind in enumerate(kinds):
        if kind.convolves:
            out = torch.conv2d(x, weights[layer], biases[layer], kind.stride, kind.padding)
        else:
            x = x.flatten(1) if x.dim() > 2 else x
            out = torch.nn.functional.linear(x, weights[layer], biases[layer])
        inputs.append(x)
        x = out
        if kind.pools:
            rows, x = pool(out)
            pooled.append((out, rows))
        x = x.relu_() if kind.cuts else x
        outputs.append(x)
    share = torch.full([y.shape[0]], 1 / y.shape[0])
    error, losses = softmax_error(x, y, share, scale, shift)
    errors: list[Tensor] = []
    for behind in range(1, len(kinds) + 1):
        layer = len(kinds) - behind
        kind = kinds[layer]
        if kind.convolves:  # what follows may have flattened it
            error = error.view_as(outputs[layer])
        if kind.cuts:
            error = torch.ops.aten.threshold_backward(error, outputs[layer], 0)
        if kind.pools:
            error = unpool(error, *pooled.pop())
        errors.append(error)
        if layer > 0:
            error = input_slope(kind, weights[layer], error, inputs[layer])
    errors.reverse()
    return errors, inputs, losses @ share


def input_slope(kind: LayerKind, weight: Tensor, error: Tensor, x: Tensor) -> Tensor:
    """The loss's gradient with respect to a layer's input."""
    if kind.convolves:
        return convolution_slopes(kind, weight, error, x, [True, False, False])[0]
    return error @ weight


def add_slopes(
    kinds: list[LayerKind],
    weights: list[Tensor],
    biases: list[Tensor],
    errors: list[Tensor],
    inputs: list[Tensor],
    keep: float,
    scale: float,
) -> None:
    """Adds ``scale`` times the gradient to ``keep`` times each weight and bias."""
    for layer, kind in enumerate(kinds):
        weight, bias, error = weights[layer], biases[layer], errors[layer]
        if kind.convolves:
            _, slope, summed = convolution_slopes(kind, weight, error, inputs[layer], [False, True, True])
            weight.mul_(keep).add_(slope, alpha=scale)
            bias.mul_(keep).add_(summed, alpha=scale)
        else:
            weight.addmm_(error.t(), inputs[layer], beta=keep, alpha=scale)
            bias.addmv_(error.t(), torch.ones(error.shape[0]), beta=keep, alpha=scale)


def convolution_slopes(
    kind: LayerKind, weight: Tensor, error: Tensor, x: Tensor, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients with respect to input, weight and bias, where wanted."""
    return torch.ops.aten.convolution_backward(
        error, x, weight, [weight.shape[0]], kind.stride, kind.padding, [1, 1], False, [0, 0], 1, wanted
    )
