"""Convolutions of one image: forward, and back to the weights and to the image before.

Forward, a tile of outputs is summed in registers, and ReLU and pooling happen before it is stored. Backward,
only outputs that count (the largest of its square, above zero) are looked at: usually one in eight.
"""

from collections.abc import Iterator

from fedcohort.engines.vector.language import BYTE, INT, REAL, Array, Code, Operand, Value
from fedcohort.engines.vector.layout import Convolution, up

Cells = list[tuple[int, int]]


def fits(total: int, most: int) -> int:
    """The size of as few equal blocks as there can be."""
    return -(-total // -(-total // max(1, most)))


def is_wide(layer: Convolution) -> bool:
    """Whether a first layer's vectors are fuller along the image's rows than along its outputs."""
    columns = layer.output.width * (2 if layer.pools else 1)
    along_rows = columns / up(columns, layer.lanes * (2 if layer.pools else 4))
    return layer.stride == (1, 1) and along_rows > layer.outputs / up(layer.outputs, layer.lanes)


def square(layer: Convolution) -> Cells:
    """What is pooled to one output."""
    return [(0, 0), (0, 1), (1, 0), (1, 1)] if layer.pools else [(0, 0)]


def below(layer: Convolution, y: Operand, x: Operand) -> Operand:
    """Where the input of output (y, x) begins: of its first cell, if it is pooled."""
    step = 2 if layer.pools else 1
    return y * (step * layer.down) + x * (step * layer.right)


def to_cell(layer: Convolution, cell: Value) -> Value:
    """From there to the input of one of the four cells."""
    nothing = cell.code.value(0)
    return (cell > 1).choose(layer.down, nothing) + cell.is_odd().choose(layer.right, nothing)


def largest(cells: list[Value], cuts: bool) -> tuple[Value, Value]:
    """Of a square, and which cell it is: of equal ones the first, and what is not a number, as PyTorch
    does."""
    best, winner = cells[0], cells[0].code.zeros(BYTE)
    for number, candidate in enumerate(cells[1:], 1):
        better = (candidate > best) | candidate.differs(candidate)
        best, winner = better.choose(candidate, best), better.choose(number, winner)
    return (best < 0.0).choose(0.0, best) if cuts else best, winner


def forward_deep(
    code: Code, layer: Convolution, image: Array, turned: Array, bias: Array, out: Array, winners: Array
) -> None:
    """Lanes along the outputs; weights are :func:`turn`\\ ed."""
    lanes, output, cells = code.lanes, layer.output, square(layer)
    columns = fits(output.width, code.registers // len(cells))
    abreast = max(1, code.registers // (columns * len(cells)))
    for first, vectors, kept in output_vectors(code, layer, abreast):
        with code.loop(output.height) as y, code.blocks(output.width, columns) as x:
            corner = image + below(layer, y, x)
            sums = {
                (column, vector, cell): code.register((bias + first).vector(vector * lanes))
                for column in range(columns) for vector in range(vectors) for cell in cells
            }  # fmt: skip
            with code.loop(layer.kernel[0]) as row, code.loop(layer.span) as place:
                near = corner + (row * layer.input.row + place)
                weights = turned + ((row * layer.span + place) * up(layer.outputs, lanes) + first)
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


def output_vectors(code: Code, layer: Convolution, abreast: int) -> Iterator[tuple[Value, int, int]]:
    """First output, number of vectors, and lanes of each that are outputs: the last vector may be short."""
    whole, rest = divmod(layer.outputs, code.lanes)
    for number, vectors in code.strips(whole, min(abreast, max(1, whole))):
        yield number * code.lanes, vectors, code.lanes
    if rest:
        yield code.value(whole * code.lanes), 1, rest


def turn(code: Code, layer: Convolution, weights: Array, turned: Array) -> None:
    """The weights with all outputs side by side: [kernel rows * span, outputs]."""
    wide = up(layer.outputs, code.lanes)
    with (
        code.loop(layer.outputs) as output,
        code.loop(layer.kernel[0]) as row,
        code.loop(layer.span) as place,
    ):
        number = weights[output * layer.patch + row * layer.row + place + layer.start]
        turned[(row * layer.span + place) * wide + output] = number


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
        with (
            code.loop(depth) as channel,
            code.loop(layer.kernel[0]) as ky,
            code.loop(layer.kernel[1]) as kx,
        ):
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


def mask(code: Code, layer: Convolution, out: Array, slope: Array) -> None:
    """What ReLU has cut has no slope."""
    with code.loop(layer.output.size, code.lanes) as place:
        slope[place] = out.vector(place).exceeds(0.0).choose(slope.vector(place), code.zeros())


def weight_slopes(
    code: Code, layer: Convolution, image: Array, winners: Array, slope: Array, gradient: Array, noted: Array
) -> None:
    """Output by output: notes which slopes count and where, then sums over all of them in registers."""
    output, lanes = layer.output, code.lanes
    numbers = (noted + output.height * output.width).holding(REAL)
    with code.loop(layer.outputs) as channel:
        count = code.register(0)
        with code.loop(output.height) as y, code.loop(output.width) as x:
            number = slope[y * output.row + x * output.channels + channel + output.first]
            at = code.value(below(layer, y, x))
            if layer.pools:
                at = at + to_cell(layer, winners[(y * output.width + x) * output.channels + channel].as_int())
            numbers[count.get()], noted[count.get()] = number, at
            count.add(number.differs(0.0).as_int())
        numbers[count.get()] = code.zeros()
        total = code.register(code.zeros())
        with code.loop(count.get(), lanes) as entry:
            total.add(numbers.vector(entry))
        bias, into = gradient + layer.bias, gradient + (channel * layer.patch + layer.start)
        bias[channel] = bias[channel] + total.get().total()
        for row, right, tile in kernel_tiles(code, layer):
            sums = dict(zip(tile, code.sums(len(tile)), strict=True))
            with code.loop(count.get()) as entry:
                number, corner = numbers[entry], image + (noted[entry] + row * layer.input.row + right)
                for (dy, dx), each in sums.items():
                    each.add_product(number.spread(lanes), corner.vector(dy * layer.input.row + dx))
            for (dy, dx), each in sums.items():
                real = code.lanes_below(code.value(layer.span - dx) - right)
                at = row * layer.row + right + (dy * layer.row + dx)
                into[at] = into.vector(at) + real.choose(each.get(), code.zeros())


def image_slopes(
    code: Code, layer: Convolution, winners: Array, slope: Array, weights: Array, into: Array, noted: Array
) -> None:
    """Pixel by pixel: notes which outputs count, by their cell in the square, then adds their kernels."""
    output, lanes, cells = layer.output, code.lanes, len(square(layer))
    numbers, counts = (noted + cells * layer.outputs).holding(REAL), code.room(INT, cells)
    with code.loop(layer.input.size, lanes) as place:
        into[place] = code.zeros()
    with code.loop(output.height) as y, code.loop(output.width) as x:
        for each in range(cells):
            counts[each] = each * layer.outputs
        with code.loop(layer.outputs) as channel:
            number = slope[y * output.row + x * output.channels + channel + output.first]
            cell = code.value(0)
            if layer.pools:
                cell = winners[(y * output.width + x) * output.channels + channel].as_int()
            count = counts[cell]
            numbers[count], noted[count] = number, channel * layer.patch + layer.start
            counts[cell] = count + number.differs(0.0).as_int()
        with code.loop(cells) as cell, code.when(counts[cell] > cell * layer.outputs):
            corner = into + (to_cell(layer, cell) + below(layer, y, x))
            for row, right, tile in kernel_tiles(code, layer):
                here = corner + (row * layer.input.row + right)
                places = [dy * layer.input.row + dx for dy, dx in tile]
                sums = [code.register(here.vector(at)) for at in places]
                with code.loop(counts[cell], start=cell * layer.outputs) as entry:
                    number, kernel = numbers[entry], weights + (noted[entry] + row * layer.row + right)
                    for (dy, dx), total in zip(tile, sums, strict=True):
                        total.add_product(number.spread(lanes), kernel.vector(dy * layer.row + dx))
                for at, total in zip(places, sums, strict=True):
                    here[at] = total.get()


def kernel_tiles(code: Code, layer: Convolution) -> Iterator[tuple[Value, Value, Cells]]:
    """Parts of a kernel with as many vectors as there are registers: first row, first place in it, and row
    and place of each vector from there."""
    vectors = layer.row // code.lanes
    for row, rows in code.strips(layer.kernel[0], min(layer.kernel[0], max(1, code.registers // vectors))):
        for number, count in code.strips(vectors, fits(vectors, code.registers)):
            tile = [(dy, dx * code.lanes) for dy in range(rows) for dx in range(count)]
            yield row, number * code.lanes, tile
