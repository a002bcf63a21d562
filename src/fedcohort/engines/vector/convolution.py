"""Convolutions of one image, forward: a tile of outputs is summed in registers, and ReLU and pooling happen
before it is stored."""

from collections.abc import Iterator
from typing import TypeVar

from fedcohort.engines.vector.language import BYTE, REAL, Array, Code, Value, apart
from fedcohort.engines.vector.layout import Convolution, up

Cells = list[tuple[int, int]]
Place = TypeVar("Place", Value, int)


def is_wide(layer: Convolution) -> bool:
    """Whether a first layer's vectors are fuller along the image's rows than along its outputs."""
    columns = layer.output.width * (2 if layer.pools else 1)
    along_rows = columns / up(columns, layer.lanes * (2 if layer.pools else 4))
    return layer.stride == (1, 1) and along_rows > layer.outputs / up(layer.outputs, layer.lanes)


def square(pools: bool) -> Cells:
    """What becomes one output."""
    return [(0, 0), (0, 1), (1, 0), (1, 1)] if pools else [(0, 0)]


def below(layer: Convolution, y: Place, x: Place) -> Place:
    """Where the input of output (y, x) begins: of its first cell, if it is pooled."""
    step = 2 if layer.pools else 1
    return y * (step * layer.down) + x * (step * layer.right)


def to_cell(layer: Convolution, cell: Value) -> Value:
    """From there to the input of one of the four cells."""
    nothing = cell - cell
    return (cell > 1).choose(layer.down, nothing) + cell.is_odd().choose(layer.right, nothing)


def largest(cells: list[Value], cuts: bool) -> tuple[Value, Value]:
    """Of a square, and which cell it is: of equal ones the first, and what is not a number, as PyTorch
    does."""
    best, winner = cells[0], cells[0].code.zeros(BYTE)
    for number, candidate in enumerate(cells[1:], 1):
        better = (candidate > best) | candidate.differs(candidate)
        best, winner = better.choose(candidate, best), better.choose(number, winner)
    return (best < 0.0).choose(0.0, best) if cuts else best, winner


@apart
def forward_deep(
    code: Code, layer: Convolution, image: Array, turned: Array, bias: Array, out: Array, winners: Array
) -> None:
    """Lanes along the outputs; weights are :func:`turn`\\ ed."""
    lanes, output, cells = code.lanes, layer.output, square(layer.pools)
    columns, abreast = together(code, layer)
    for first, vectors, kept in output_vectors(code, layer, abreast):
        strip = turned + first * (layer.kernel[0] * layer.span)
        with code.loop(output.height) as y, code.blocks(output.width, columns) as x:
            corner = image + below(layer, y, x)
            sums = {
                (column, vector, cell): code.register((bias + first).vector(vector * lanes))
                for column in range(columns) for vector in range(vectors) for cell in cells
            }  # fmt: skip
            with code.loop(layer.kernel[0]) as row, code.loop(layer.span) as place:
                near = corner + (row * layer.input.row + place)
                weights = strip + (row * layer.span + place) * (vectors * lanes)
                parts = [weights.vector(vector * lanes) for vector in range(vectors)]
                for (column, vector, (dy, dx)), each in sums.items():
                    number = near[below(layer, 0, column) + dy * layer.down + dx * layer.right]
                    each.add_product(number.spread(lanes), parts[vector])
            for column in range(columns):
                for vector in range(vectors):
                    best, winner = largest([sums[column, vector, cell].get() for cell in cells], layer.cuts)
                    place = (x + column) * output.channels + first + vector * lanes
                    out[y * output.row + place + output.first] = best.pick(range(kept))
                    if layer.pools:
                        winners[y * (output.width * output.channels) + place] = winner.pick(range(kept))


def together(code: Code, layer: Convolution) -> tuple[int, int]:
    """How many columns and how many vectors of outputs are summed at a time: what takes the least time, if a
    number is loaded as fast as a product is added and eight products are under way at once."""
    cells, total = len(square(layer.pools)), up(layer.outputs, code.lanes) // code.lanes

    def time(shape: tuple[int, int]) -> int:
        columns, vectors = shape
        whole, rest = divmod(total, vectors)
        widths, numbers = [vectors] * whole + [rest] * bool(rest), columns * cells
        return -(-layer.output.width // columns) * sum(max(8, numbers * v, numbers + v) for v in widths)

    some = range(1, code.most + 1)
    shapes = [(columns, vectors) for vectors in some for columns in some]
    fitting = [
        (columns, vectors) for columns, vectors in shapes
        if columns * cells * vectors <= code.most and (columns * cells + 1) * vectors < code.registers
    ]  # fmt: skip
    return min(fitting, key=time)


def output_vectors(code: Code, layer: Convolution, abreast: int) -> Iterator[tuple[Value, int, int]]:
    """First output, number of vectors, and lanes of each that are outputs: the last vector may be short."""
    whole, rest = divmod(layer.outputs, code.lanes)
    for number, vectors in code.strips(whole, min(abreast, max(1, whole))):
        yield number * code.lanes, vectors, code.lanes
    if rest:
        yield code.value(whole * code.lanes), 1, rest


@apart
def turn(code: Code, layer: Convolution, weights: Array, turned: Array) -> None:
    """The weights with those outputs side by side that are summed together: [strips, kernel rows * span,
    outputs of a strip]."""
    for first, vectors, kept in output_vectors(code, layer, together(code, layer)[1]):
        strip, wide = turned + first * (layer.kernel[0] * layer.span), vectors * code.lanes
        with (
            code.loop(min(wide, kept * vectors)) as output,
            code.loop(layer.kernel[0]) as row,
            code.loop(layer.span) as place,
        ):
            number = weights[(first + output) * layer.patch + row * layer.row + place + layer.start]
            strip[(row * layer.span + place) * wide + output] = number


@apart
def forward_wide(
    code: Code, layer: Convolution, planes: Array, weights: Array, bias: Array, out: Array, winners: Array
) -> None:
    """Lanes along the rows of an image that lies channel by channel."""
    lanes, output, depth = code.lanes, layer.output, layer.input.channels
    row, plane = layer.input.row // depth, layer.input.size // depth
    high, across = (2, 2) if layer.pools else (1, 4)  # rows, and vectors side by side
    kept = lanes * across // high  # columns that come out of them
    outputs = min(layer.outputs, 6 if lanes == 16 else 2)
    values, cells = code.room(REAL, outputs * kept), code.room(BYTE, outputs * kept)
    tile = [(y, x) for y in range(high) for x in range(across)]
    starts = code.blocks(layer.outputs, outputs), code.loop(output.height), code.loop(output.width, kept)
    with starts[0] as first, starts[1] as y, starts[2] as x:
        sums = {
            (number, cell): code.register((bias + first)[number].spread(lanes))
            for number in range(outputs) for cell in tile
        }  # fmt: skip
        with code.loop(depth) as channel, code.loop(layer.kernel[0]) as ky, code.loop(layer.kernel[1]) as kx:
            corner = planes + (y * (high * row) + x * high + channel * plane + ky * row + kx)
            near = {(dy, dx): corner.vector(dy * row + dx * lanes) for dy, dx in tile}
            kernel = weights + (first * layer.patch + ky * layer.row + kx * depth + channel)
            for number in range(outputs):
                weight = kernel[number * layer.patch].spread(lanes)
                for cell in tile:
                    sums[number, cell].add_product(weight, near[cell])
        for number in range(outputs):
            found = [sums[number, cell].get() for cell in tile]
            if layer.pools:
                even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
                pairs = [(found[0], found[1]), (found[2], found[3])]
                four = [left.pick(side, right) for left, right in pairs for side in (even, odd)]
                values[number * kept], cells[number * kept] = largest(four, layer.cuts)
            else:
                for part, each in enumerate(found):
                    values[number * kept + part * lanes], _ = largest([each], layer.cuts)
        rest = code.value(output.width) - x
        with code.loop((rest > kept).choose(kept, rest)) as column:
            place = (x + column) * output.channels + first
            for number in range(outputs):
                out[y * output.row + place + (output.first + number)] = values[column + number * kept]
                if layer.pools:
                    at = y * (output.width * output.channels) + place + number
                    winners[at] = cells[column + number * kept]
