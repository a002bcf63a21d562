"""Layers whose PyTorch kernels are slow on a CPU, replaced by exact ones.

``max_pool2d`` looks at one element at a time; the larger of two half-images is a vector operation. On
LeNet-5's first pooling that is a tenth of the time forward, and about half in total.
"""

from typing import Any

import torch
from torch import Tensor, nn


class HalvingPool(torch.autograd.Function):
    """Max-pooling of 2x2 squares: the larger of neighbouring rows, then of neighbouring columns."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        rows = torch.maximum(x[..., 0::2, :], x[..., 1::2, :])
        out = torch.maximum(rows[..., 0::2], rows[..., 1::2])
        ctx.save_for_backward(x, rows, out)
        return out

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        """The slope goes to whichever element was the larger; to the first of two equal ones."""
        x, rows, out = ctx.saved_tensors
        (slope,) = slopes
        by_row = torch.empty_like(rows)
        torch.mul(slope, rows[..., 0::2] == out, out=by_row[..., 0::2])
        torch.sub(slope, by_row[..., 0::2], out=by_row[..., 1::2])
        back = torch.empty_like(x)
        torch.mul(by_row, x[..., 0::2, :] == rows, out=back[..., 0::2, :])
        torch.sub(by_row, back[..., 0::2, :], out=back[..., 1::2, :])
        return back


class FastMaxPool2d(nn.MaxPool2d):
    """nn.MaxPool2d(2), through HalvingPool where the image has even sides."""

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] % 2 or x.shape[-2] % 2 or not x.is_contiguous():
            return super().forward(x)
        pooled: Tensor = HalvingPool.apply(x)
        return pooled


def speed_up(module: nn.Module) -> nn.Module:
    """Replaces layers of ``module`` in place where there is a faster one that gives the same."""
    for parent in list(module.modules()):
        if type(parent) is nn.Sequential:
            _pool_first(parent)
        for name, child in list(parent.named_children()):
            if type(child) is nn.MaxPool2d and _halves(child):
                setattr(parent, name, FastMaxPool2d(2))
    return module


def _pool_first(layers: nn.Sequential) -> None:
    """ReLU after max-pooling instead of before: the same numbers and slopes, on a quarter of the image."""
    for place in range(len(layers) - 1):
        first, second = layers[place], layers[place + 1]
        if type(first) is nn.ReLU and type(second) is nn.MaxPool2d and not second.return_indices:
            layers[place], layers[place + 1] = second, first


def _halves(layer: nn.MaxPool2d) -> bool:
    simple = layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1)) and not layer.return_indices
    return (
        simple
        and all(size in (2, (2, 2)) for size in (layer.kernel_size, layer.stride))
        and not layer.ceil_mode
    )
