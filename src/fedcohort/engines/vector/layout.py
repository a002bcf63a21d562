"""Where everything lies, padded so that loops have no rest: what is added is zero and stays zero.

Images lie pixel by pixel, all channels of a pixel side by side, with the next convolution's margin of zeros
around them: what a kernel covers of a row is contiguous. Weights follow the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from fedcohort.engines.chain import Chain, Kind, Layer

SAMPLES = 4  # of a batch are taken at a time ...
OUTPUTS = 12  # ... and a dense layer is filled up to a multiple of this many outputs
LINE = 16  # numbers in a line of the processor's cache, where samples begin


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Image:
    """A layer's input or output."""

    channels: int
    height: int
    width: int
    margin: tuple[int, int] = (0, 0)  # rows above and below, columns left and right

    @property
    def row(self) -> int:
        return (self.width + 2 * self.margin[1]) * self.channels

    @property
    def first(self) -> int:
        """Where the first pixel inside the margin lies."""
        return self.margin[0] * self.row + self.margin[1] * self.channels

    @property
    def size(self) -> int:
        return (self.height + 2 * self.margin[0]) * self.row

    @property
    def stride(self) -> int:
        """From one sample to the next."""
        return up(self.size, LINE)


class Convolution:
    """A convolution on images of one size; its weights are packed as [outputs, kernel rows, row]."""

    def __init__(self, layer: Layer, lanes: int, start: int, image: Image, margin: tuple[int, int]) -> None:
        kind, self.layer, self.lanes = layer.kind, layer, lanes
        self.outputs, channels, *self.kernel = layer.shape
        self.span = self.kernel[1] * channels  # numbers of an image's row that the kernel covers
        self.row = up(self.span, lanes)
        self.patch = self.kernel[0] * self.row
        self.start = start
        self.bias = start + self.outputs * self.patch
        self.end = self.bias + up(self.outputs, lanes)
        self.pools, self.cuts, self.stride = kind.pools, kind.cuts, kind.stride
        self.down, self.right = kind.stride[0] * image.row, kind.stride[1] * channels  # to the next output's
        sides = zip((image.height, image.width), kind.padding, self.kernel, kind.stride, strict=True)
        height, width = ((side + 2 * pad - kernel) // stride + 1 for side, pad, kernel, stride in sides)
        halve = 2 if kind.pools else 1
        self.input, self.output = image, Image(self.outputs, height // halve, width // halve, margin)

    def views(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        """Its weight and bias inside the packed vector, in the model's shape."""
        rows = packed[self.start : self.bias].view(self.outputs, self.kernel[0], self.row)
        weight = rows[:, :, : self.span].unflatten(2, (self.kernel[1], -1)).permute(0, 3, 1, 2)
        return weight, packed[self.bias : self.bias + self.outputs]


class Dense:
    """A linear layer; its weights are packed as [outputs, row]."""

    def __init__(self, layer: Layer, lanes: int, start: int, stride: int, image: Image | None) -> None:
        self.layer, self.lanes, self.image, self.cuts = layer, lanes, image, layer.kind.cuts
        self.row = up(layer.shape[1], lanes)
        self.outputs = up(layer.shape[0], OUTPUTS)
        self.stride, self.width = stride, up(self.outputs, LINE)  # between samples: of inputs, of outputs
        self.start = start
        self.bias = start + self.outputs * self.row
        self.end = self.bias + self.width

    def views(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        real, inputs = self.layer.shape
        weight = packed[self.start : self.bias].view(self.outputs, self.row)[:real, :inputs]
        if self.image is not None:  # which the model flattens channel by channel
            weight = weight.unflatten(1, (self.image.height, self.image.width, -1)).permute(0, 3, 1, 2)
        return weight, packed[self.bias : self.bias + real]


class Layout:
    """A chain of layers on examples of one shape."""

    def __init__(self, chain: Chain, shape: tuple[int, ...], lanes: int) -> None:
        self.chain, self.lanes = chain, lanes
        self.images: list[Convolution] = []
        self.dense: list[Dense] = []
        if chain.is_linear:
            image = Image(1, 1, prod(shape))
        else:
            image = Image(shape[0], shape[1], shape[2], chain.kinds[0].padding)
        self.head, self.size = image, 0
        stride, flattened = image.stride, not chain.is_linear
        for layer, following in zip(chain.layers, [*chain.kinds[1:], Kind()], strict=True):
            if layer.kind.convolves:
                self.images.append(Convolution(layer, lanes, self.size, image, following.padding))
                image, self.size = self.images[-1].output, self.images[-1].end
                stride = image.stride
            else:
                self.dense.append(Dense(layer, lanes, self.size, stride, image if flattened else None))
                stride, self.size, flattened = self.dense[-1].width, self.dense[-1].end, False

    def pairs(self, packed: Tensor, vector: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight and bias: inside the packed vector, and inside the model's."""
        layers: list[Convolution | Dense] = [*self.images, *self.dense]
        for ours in layers:
            theirs, (weight, bias) = ours.layer, ours.views(packed)
            yield weight, theirs.weight(vector).view(weight.shape)
            yield bias, theirs.bias(vector)

    def pack(self, vector: Tensor) -> Tensor:
        packed = torch.zeros(self.size)
        for ours, theirs in self.pairs(packed, vector):
            ours.copy_(theirs)
        return packed

    def unpack(self, packed: Tensor, vector: Tensor) -> None:
        for ours, theirs in self.pairs(packed, vector):
            theirs.copy_(ours)
