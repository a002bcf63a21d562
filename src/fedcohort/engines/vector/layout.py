"""Where everything lies, padded so that loops have no rest: what is added is zero and stays zero.

Images lie pixel by pixel, all channels of a pixel side by side, with the next convolution's margin of zeros
around them: what a kernel covers of a row is contiguous. Weights follow the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedcohort.engines.chain import Chain, Layer, LayerKind

SAMPLES = 4  # of a batch are taken at a time ...
OUTPUTS = 12  # ... and a dense layer is filled up to a multiple of this many outputs
LINE = 16  # numbers in a line of the processor's cache, where samples begin


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


@dataclass(frozen=True)
class Image:
    """A layer's input or output; a dense layer's output has one pixel."""

    channels: int
    height: int = 1
    width: int = 1
    margin: tuple[int, int] = (0, 0)  # rows above and below, columns left and right

    @property
    def row(self) -> int:
        return (self.width + 2 * self.margin[1]) * self.channels

    @property
    def first(self) -> int:
        """Where the first pixel inside the margin lies."""
        return self.margin[0] * self.row + self.margin[1] * self.channels

    @property
    def area(self) -> int:
        return self.height * self.width

    @property
    def size(self) -> int:
        return (self.height + 2 * self.margin[0]) * self.row

    @property
    def stride(self) -> int:
        """From one sample to the next."""
        return up(self.size, LINE)

    def halved(self) -> "Image":
        return replace(self, height=self.height // 2, width=self.width // 2)


class Packed:
    """A layer, and where its weights lie: the matrix, its bias and, behind them, BatchNorm's weight and bias.

    ``output`` is what the layer itself gives, ``result`` what the next one reads: the same, unless a tail
    lies between them.
    """

    output: Image
    result: Image

    def __init__(self, layer: Layer, lanes: int, start: int, matrix: int, wide: int) -> None:
        self.layer, self.tail, self.lanes, self.cuts = layer, layer.tail, lanes, layer.kind.cuts
        self.norm = layer.tail.norm if layer.tail else None
        self.start, self.wide = start, wide  # numbers in a row with one for each output
        self.bias = start + matrix
        self.scale, self.shift = self.bias + wide, self.bias + 2 * wide
        self.end = self.bias + wide * (len(layer.shapes) - 1)

    def views(self, packed: Tensor) -> list[Tensor]:
        """The layer's parts inside the packed vector; the matrix may have other axes than the model's."""
        rows = packed[self.bias : self.end].view(-1, self.wide)[:, : self.layer.shape[0]]
        return [self.matrix(packed[self.start : self.bias]), *rows]

    def matrix(self, packed: Tensor) -> Tensor:
        raise NotImplementedError


class Convolution(Packed):
    """A convolution on images of one size; its weights are packed as [outputs, kernel rows, row]."""

    def __init__(self, layer: Layer, lanes: int, start: int, image: Image, margin: tuple[int, int]) -> None:
        kind, (self.outputs, channels, *self.kernel) = layer.kind, layer.shape
        self.span = self.kernel[1] * channels  # numbers of an image's row that the kernel covers
        self.row = up(self.span, lanes)
        self.patch = self.kernel[0] * self.row
        super().__init__(layer, lanes, start, self.outputs * self.patch, up(self.outputs, lanes))
        self.pools, self.stride = kind.pools, kind.stride
        self.down, self.right = kind.stride[0] * image.row, kind.stride[1] * channels  # to the next output's
        sides = zip((image.height, image.width), kind.padding, self.kernel, kind.stride, strict=True)
        height, width = ((side + 2 * pad - kernel) // stride + 1 for side, pad, kernel, stride in sides)
        whole = Image(self.outputs, height, width)
        output = whole.halved() if kind.pools else whole
        result = output.halved() if self.tail and self.tail.pools else output
        self.input, self.result = image, replace(result, margin=margin)
        self.output = output if self.tail else self.result

    def matrix(self, packed: Tensor) -> Tensor:
        rows = packed.view(self.outputs, self.kernel[0], self.row)
        return rows[:, :, : self.span].unflatten(2, (self.kernel[1], -1)).permute(0, 3, 1, 2)


class Dense(Packed):
    """A linear layer; its weights are packed as [outputs, row]."""

    def __init__(self, layer: Layer, lanes: int, start: int, stride: int, image: Image | None) -> None:
        self.row, self.outputs = up(layer.shape[1], lanes), up(layer.shape[0], OUTPUTS)
        super().__init__(layer, lanes, start, self.outputs * self.row, up(self.outputs, LINE))
        self.stride, self.image = stride, image  # between samples of inputs; what they were
        self.output = self.result = Image(self.outputs)

    def matrix(self, packed: Tensor) -> Tensor:
        real, inputs = self.layer.shape
        weight = packed.view(self.outputs, self.row)[:real, :inputs]
        if self.image is None:
            return weight
        # The model flattens it channel by channel.
        return weight.unflatten(1, (self.image.height, self.image.width, -1)).permute(0, 3, 1, 2)


class Layout:
    """A chain of layers on examples of one shape."""

    def __init__(self, chain: Chain, shape: tuple[int, ...], lanes: int) -> None:
        self.chain, self.lanes, self.size = chain, lanes, 0
        self.layers: list[Convolution | Dense] = []
        self.head = image = Image(shape[0], shape[1], shape[2], chain.kinds[0].padding)
        for layer, following in zip(chain.layers, [*chain.kinds[1:], LayerKind()], strict=True):
            ours: Convolution | Dense
            if layer.kind.convolves:
                ours = Convolution(layer, lanes, self.size, image, following.padding)
            else:
                ours = Dense(layer, lanes, self.size, image.stride, image if image.area > 1 else None)
            self.layers.append(ours)
            image, self.size = ours.result, ours.end
        self.images = [layer for layer in self.layers if isinstance(layer, Convolution)]
        self.dense = [layer for layer in self.layers if isinstance(layer, Dense)]

    def pairs(self, packed: Tensor, vector: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Each weight and bias: inside the packed vector, and inside the model's."""
        for layer in self.layers:
            for ours, theirs in zip(layer.views(packed), layer.layer.parts(vector), strict=True):
                yield ours, theirs.view(ours.shape)

    def pack(self, vector: Tensor) -> Tensor:
        packed = torch.zeros(self.size)
        for ours, theirs in self.pairs(packed, vector):
            ours.copy_(theirs)
        return packed

    def unpack(self, packed: Tensor, vector: Tensor) -> None:
        for ours, theirs in self.pairs(packed, vector):
            theirs.copy_(ours)
