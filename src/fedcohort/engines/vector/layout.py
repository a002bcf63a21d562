"""Where everything lies, padded so that no loop has a rest: what is added is zero and stays zero.

Images are kept pixel by pixel, all channels of a pixel side by side, with the next convolution's margin of
zeros around them: the part of a row that a kernel covers is contiguous. Weights follow the same order.
"""

from dataclasses import dataclass
from functools import cached_property
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
        """Where the first pixel lies."""
        return self.margin[0] * self.row + self.margin[1] * self.channels

    @property
    def size(self) -> int:
        return (self.height + 2 * self.margin[0]) * self.row

    @property
    def stride(self) -> int:
        """From one sample to the next."""
        return up(self.size, LINE)


@dataclass(frozen=True)
class Convolution:
    """A convolution on images of one size, perhaps with ReLU and pooling."""

    layer: Layer
    lanes: int
    start: int  # of its weights in the packed vector: [outputs, kernel rows, row]
    input: Image
    output: Image  # after pooling

    @property
    def outputs(self) -> int:
        return self.layer.shape[0]

    @property
    def kernel(self) -> tuple[int, int]:
        return self.layer.shape[2], self.layer.shape[3]

    @property
    def span(self) -> int:
        """Numbers of an image's row that the kernel covers."""
        return self.kernel[1] * self.input.channels

    @property
    def row(self) -> int:
        return up(self.span, self.lanes)

    @property
    def patch(self) -> int:
        return self.kernel[0] * self.row

    @property
    def bias_start(self) -> int:
        return self.start + self.outputs * self.patch

    @property
    def end(self) -> int:
        return self.bias_start + up(self.outputs, self.lanes)

    @property
    def pools(self) -> bool:
        return self.layer.kind.pools

    @property
    def step(self) -> tuple[int, int]:
        """How far apart the inputs of neighbouring outputs (before pooling) are in memory: down, right."""
        down, right = self.layer.kind.stride
        return down * self.input.row, right * self.input.channels

    def order(self, missing: int) -> Tensor:
        """For each place of the packed vector the place in the model's, or ``missing``."""
        outputs, channels, height, width = shape = self.layer.shape
        weight = torch.arange(self.layer.start, self.layer.bias_start).view(shape).permute(0, 2, 3, 1)
        filled = torch.full((outputs, height, self.row), missing)
        filled[:, :, : self.span] = weight.reshape(outputs, height, width * channels)
        return torch.cat([filled.flatten(), _bias(self.layer, self.end - self.bias_start, missing)])


@dataclass(frozen=True)
class Dense:
    """A linear layer, perhaps with ReLU."""

    layer: Layer
    lanes: int
    start: int  # of its weights in the packed vector: [outputs, row]
    image: Image | None  # what it flattens
    stride: int  # from one sample's inputs to the next

    @property
    def inputs(self) -> int:
        return self.layer.shape[1]

    @property
    def row(self) -> int:
        return up(self.inputs, self.lanes)

    @property
    def outputs(self) -> int:
        return up(self.layer.shape[0], OUTPUTS)

    @property
    def width(self) -> int:
        """From one sample's outputs to the next."""
        return up(self.outputs, LINE)

    @property
    def bias_start(self) -> int:
        return self.start + self.outputs * self.row

    @property
    def end(self) -> int:
        return self.bias_start + self.width

    def order(self, missing: int) -> Tensor:
        outputs = self.layer.shape[0]
        weight = torch.arange(self.layer.start, self.layer.bias_start).view(outputs, self.inputs)
        if self.image is not None:
            image = self.image
            weight = weight.view(outputs, image.channels, image.height, image.width).permute(0, 2, 3, 1)
        filled = torch.full((self.outputs, self.row), missing)
        filled[:outputs, : self.inputs] = weight.reshape(outputs, self.inputs)
        return torch.cat([filled.flatten(), _bias(self.layer, self.width, missing)])


def _bias(layer: Layer, width: int, missing: int) -> Tensor:
    filled = torch.full((width,), missing)
    filled[: layer.shape[0]] = torch.arange(layer.bias_start, layer.end)
    return filled


class Layout:
    """A chain of layers on examples of one shape."""

    def __init__(self, chain: Chain, shape: tuple[int, ...], lanes: int) -> None:
        self.lanes, self.num_params = lanes, chain.num_params
        self.images: list[Convolution] = []
        self.dense: list[Dense] = []
        is_image = chain.kinds[0].convolves
        self.head = image = Image(*shape, chain.kinds[0].padding) if is_image else Image(1, 1, prod(shape))
        start = 0
        for layer, following in zip(chain.layers, [*chain.kinds[1:], Kind()], strict=True):
            if layer.kind.convolves:
                after = Image(layer.shape[0], *_sides(layer, image), following.padding)
                self.images.append(Convolution(layer, lanes, start, image, after))
                image, start = after, self.images[-1].end
            else:
                last = self.dense[-1] if self.dense else None
                self.dense.append(
                    Dense(layer, lanes, start, None if last else image, last.width if last else image.stride)
                )
                start = self.dense[-1].end
        self.size = start

    @cached_property
    def order(self) -> Tensor:
        """For each place of the packed vector the model's parameter; one too many stands for a zero."""
        return torch.cat([layer.order(self.num_params) for layer in (*self.images, *self.dense)])

    @cached_property
    def places(self) -> Tensor:
        """Where each of the model's parameters is in the packed vector."""
        places = torch.empty(self.num_params + 1, dtype=torch.int64)
        places[self.order] = torch.arange(self.size)
        return places[:-1]

    def pack(self, vector: Tensor) -> Tensor:
        return torch.cat([vector, vector.new_zeros(1)]).index_select(0, self.order)

    def unpack(self, packed: Tensor) -> Tensor:
        return packed.index_select(0, self.places)


def _sides(layer: Layer, image: Image) -> tuple[int, int]:
    """Height and width of what comes out."""
    sides = [
        (side + 2 * pad - kernel) // stride + 1
        for side, pad, kernel, stride in zip(
            (image.height, image.width), layer.kind.padding, layer.shape[2:], layer.kind.stride, strict=True
        )
    ]
    height, width = (side // 2 for side in sides) if layer.kind.pools else sides
    return height, width
