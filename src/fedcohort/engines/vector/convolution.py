"""Convolutions of one image: forward, and back to the weights and the image before.

Forward, a tile of outputs is summed in registers, and ReLU and pooling happen before it is stored. Backward,
only outputs that count (the largest of its square, above zero) are looked at: usually one in eight.
"""

from collections.abc import Iterator

from llvmlite import ir

from fedcohort.engines.vector.language import BYTE, INT, REAL, Array, Code, Operand, Register, Value
from fedcohort.engines.vector.layout import Convolution, up

FLOATS, BYTES, INTS = (REAL,), (BYTE,), (INT,)


def fits(total: int, most: int) -> int:
    """The size of as few equal blocks as there can be."""
    return -(-total // -(-total // most))


def is_wide(layer: Convolution, first: bool) -> bool:
    """Whether lanes are better along the image's rows than along the outputs."""
    return first and layer.layer.kind.stride == (1, 1) and layer.outputs < layer.lanes


def position(layer: Convolution, y: Operand, x: Operand) -> Operand:
    """Of the input below output (y, x), as it is after pooling."""
    down, right = layer.step
    twice = 2 if layer.pools else 1
    return y * (twice * down) + x * (twice * right)


class Largest:
    """Of the four numbers of a square, and which it is; of equal ones the first, as PyTorch takes it."""

    def __init__(self, square: list[Value], cuts: bool) -> None:
        best, code = (
            square[0],
            Value(square[0].code, ir.Constant(ir.VectorType(BYTE, square[0].kind.count), None)),
        )
        for number, candidate in enumerate(square[1:], 1):
            better = (candidate > best) | candidate.differs(candidate)
            best, code = better.choose(candidate, best), better.choose(number, code)
        self.value, self.code = ((best < 0.0).choose(0.0, best) if cuts else best), code


def write_deep(module: ir.Module, layer: Convolution, name: str) -> Code:
    """Forward with lanes along the outputs; weights are [kernel rows * span, outputs], filled up."""
    lanes = layer.lanes
    code = Code(module, f"{name}_forward", [FLOATS, FLOATS, FLOATS, FLOATS, BYTES], lanes)
    image, weights, bias, out, winners = code.arguments
    wide, output = up(layer.outputs, lanes), layer.output
    square = [(0, 0), (0, 1), (1, 0), (1, 1)] if layer.pools else [(0, 0)]
    columns = fits(output.width, code.registers // len(square))
    vectors = max(
        count for count in range(1, wide // lanes + 1)
        if wide // lanes % count == 0 and (count == 1 or count * columns * len(square) <= code.registers)
    )  # fmt: skip
    down, right = layer.step
    cells = [(x, part, cell) for x in range(columns) for part in range(vectors) for cell in square]
    with code.loop(wide, lanes * vectors) as channel, code.loop(output.height) as y:
        with code.blocks(output.width, columns) as x:
            corner = image + position(layer, y, x)
            sums = {cell: code.register(bias.vector(channel + cell[1] * lanes)) for cell in cells}
            with code.loop(layer.kernel[0]) as row, code.loop(layer.span) as place:
                below = corner + (row * layer.input.row + place)
                column = weights + ((row * layer.span + place) * wide + channel)
                parts = [column.vector(part * lanes) for part in range(vectors)]
                for (shift, part, (dy, dx)), total in sums.items():
                    offset = position(layer, 0, shift) + dy * down + dx * right
                    total.add_product(below[offset].spread(lanes), parts[part])
            for shift in range(columns):
                for part in range(vectors):
                    best = Largest([sums[shift, part, cell].get() for cell in square], layer.layer.kind.cuts)
                    place = (x + shift) * output.channels + channel + part * lanes
                    _store(
                        code, out + (output.first + y * output.row + place), best.value, layer, channel, part
                    )
                    if layer.pools:
                        target = winners + (y * (output.width * output.channels) + place)
                        _store(code, target, best.code, layer, channel, part)
    return code.end()


def _store(code: Code, target: Array, value: Value, layer: Convolution, channel: Value, part: int) -> None:
    """Only the lanes that there are: the last vector of outputs may be short."""
    short = layer.outputs % layer.lanes
    if not short:
        target[0] = value
    elif layer.outputs < layer.lanes:
        target[0] = value.pick(range(short))
    else:
        with code.either(channel.equals(layer.outputs - short - part * layer.lanes)) as (last, other):
            with last:
                target[0] = value.pick(range(short))
            with other:
                target[0] = value


def write_wide(module: ir.Module, layer: Convolution, name: str) -> Code:
    """Forward with lanes along the image's rows, for the first layer: its image also lies plane by plane."""
    lanes, output, kind = layer.lanes, layer.output, layer.layer.kind
    code = Code(module, f"{name}_forward", [FLOATS, FLOATS, FLOATS, FLOATS, BYTES], lanes)
    planes, weights, bias, out, winners = code.arguments
    row, plane = layer.input.row // layer.input.channels, layer.input.size // layer.input.channels
    channels = min(layer.outputs, code.registers // 4)
    high = 2 if layer.pools else 1
    across = 2 if layer.pools else 4  # vectors side by side
    keep = lanes * across // (2 if layer.pools else 1)  # columns that come out of them
    values, codes = code.room(REAL, channels * keep), code.room(BYTE, channels * keep)
    with code.blocks(layer.outputs, channels) as channel, code.loop(output.height) as y:
        with code.loop(output.width, keep) as x:
            corner = planes + (y * (high * row) + x * (high))
            sums = {
                (c, dy, dx): code.register((bias + channel)[c].spread(lanes))
                for c in range(channels) for dy in range(high) for dx in range(across)
            }  # fmt: skip
            with code.loop(layer.input.channels) as depth, code.loop(layer.kernel[0]) as ky:
                line = corner + (depth * plane + ky * row)
                first = weights + (channel * layer.patch + ky * layer.row + depth)
                with code.loop(layer.kernel[1]) as kx:
                    near = {
                        (dy, dx): (line + kx).vector(dy * row + dx * lanes)
                        for dy in range(high) for dx in range(across)
                    }  # fmt: skip
                    for c in range(channels):
                        weight = (first + kx * layer.input.channels)[c * layer.patch].spread(lanes)
                        for dy, dx in near:
                            sums[c, dy, dx].add_product(weight, near[dy, dx])
            for c in range(channels):
                if layer.pools:
                    rows = [[sums[c, dy, dx].get() for dx in range(2)] for dy in range(2)]
                    even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
                    best = Largest(
                        [left.pick(side, right) for left, right in rows for side in (even, odd)], kind.cuts
                    )
                    values[c * keep], codes[c * keep] = best.value, best.code
                else:
                    for dx in range(across):
                        values[c * keep + dx * lanes] = Largest([sums[c, 0, dx].get()], kind.cuts).value
            rest = code.value(output.width) - x
            with code.loop((rest > keep).choose(keep, rest)) as column:
                place = (x + column) * output.channels + channel
                target = out + (output.first + y * output.row + place)
                for c in range(channels):
                    target[c] = values[column + c * keep]
                if layer.pools:
                    target = winners + (y * (output.width * output.channels) + place)
                    for c in range(channels):
                        target[c] = codes[column + c * keep]
    return code.end()


def write_backward(module: ir.Module, layer: Convolution, name: str, first: bool) -> Code:
    """From the slope at the output, which it masks, to the slopes of weights, biases and input.

    ``noted`` holds what counts: numbers, and where they act.
    """
    takes = [FLOATS, FLOATS, BYTES, FLOATS, FLOATS, FLOATS, FLOATS, INTS]
    code = Code(module, f"{name}_backward", takes, layer.lanes)
    image, out, winners, slope, weights, gradient, image_slope, noted = code.arguments
    if layer.layer.kind.cuts:
        with code.loop(up(layer.output.size, layer.lanes), layer.lanes) as place:
            live = out.vector(place).exceeds(0.0)
            slope[place] = live.choose(slope.vector(place), code.zero())
    _weight_slopes(code, layer, image, winners, slope, gradient, noted)
    if not first:
        with code.loop(up(layer.input.size, layer.lanes), layer.lanes) as place:
            image_slope[place] = code.zero()
        _image_slopes(code, layer, winners, slope, weights, image_slope, noted)
    return code.end()


def _weight_slopes(
    code: Code, layer: Convolution, image: Array, winners: Array, slope: Array, gradient: Array, noted: Array
) -> None:
    """Output by output: a list of what counts, then one sum in registers over all of it."""
    output, lanes = layer.output, layer.lanes
    numbers = Array(code, (noted + output.height * output.width).start)
    with code.loop(layer.outputs) as channel:
        count = code.register(0)
        with code.loop(output.height) as y, code.loop(output.width) as x:
            number = slope[y * output.row + x * output.channels + (channel + output.first)]
            at = position(layer, y, x)
            if layer.pools:
                winner = winners[(y * output.width + x) * output.channels + channel].as_int()
                at = at + within(code, layer, winner)
            numbers[count.get()], noted[count.get()] = number, at
            count.add(number.differs(0.0).as_int())
        numbers[count.get()] = code.zero()
        total = code.register(code.zero())
        with code.loop(count.get(), lanes) as entry:
            total.add(numbers.vector(entry))
        bias = gradient + layer.bias_start
        bias[channel] = bias[channel] + total.get().total()
        into = gradient + (layer.start + channel * layer.patch)
        for row, right, tile in kernel_tiles(code, layer):
            sums = {cell: code.register(code.zero()) for cell in tile}
            shift = row * layer.input.row + right
            with code.loop(count.get()) as entry:
                number, corner = numbers[entry].spread(lanes), image + (noted[entry] + shift)
                for (y, x), each in sums.items():
                    each.add_product(number, corner.vector(y * layer.input.row + x))
            for (y, x), each in sums.items():
                real = code.lanes_below(code.value(layer.span - x) - right)
                at = row * layer.row + right + (y * layer.row + x)
                into[at] = into.vector(at) + real.choose(each.get(), code.zero())


def _image_slopes(
    code: Code,
    layer: Convolution,
    winners: Array,
    slope: Array,
    weights: Array,
    image_slope: Array,
    noted: Array,
) -> None:
    """Pixel by pixel: the outputs that count, sorted by their place in the square, then their kernels."""
    output, lanes = layer.output, layer.lanes
    cells = 4 if layer.pools else 1
    numbers = Array(code, (noted + cells * layer.outputs).start)
    counts = code.room(INT, cells)
    with code.loop(output.height) as y, code.loop(output.width) as x:
        for cell in range(cells):
            counts[cell] = cell * layer.outputs
        with code.loop(layer.outputs) as channel:
            number = slope[y * output.row + x * output.channels + (channel + output.first)]
            cell: Operand = 0
            if layer.pools:
                cell = winners[(y * output.width + x) * output.channels + channel].as_int()
            count = counts[cell]
            numbers[count], noted[count] = number, channel * layer.patch + layer.start
            counts[cell] = count + number.differs(0.0).as_int()
        with code.loop(cells) as cell, code.when(counts[cell] > cell * layer.outputs):
            into = image_slope + (position(layer, y, x) + within(code, layer, cell))
            for row, right, tile in kernel_tiles(code, layer):
                here = into + (row * layer.input.row + right)
                sums = {(y, x): code.register(here.vector(y * layer.input.row + x)) for y, x in tile}
                with code.loop(counts[cell], start=cell * layer.outputs) as entry:
                    number, kernel = (
                        numbers[entry].spread(lanes),
                        weights + (noted[entry] + row * layer.row + right),
                    )
                    for (y, x), each in sums.items():
                        each.add_product(number, kernel.vector(y * layer.row + x))
                for (y, x), each in sums.items():
                    here[y * layer.input.row + x] = each.get()


def within(code: Code, layer: Convolution, cell: Value) -> Value:
    """From a square's first input to that of one of its cells."""
    down, right = layer.step
    return (cell > 1).choose(down, code.value(0)) + cell.is_odd().choose(right, code.value(0))


Tile = list[tuple[int, int]]  # kernel row and place of each vector, counted from the tile's first


def kernel_tiles(code: Code, layer: Convolution) -> Iterator[tuple[Value, Value, Tile]]:
    """Parts of a kernel with as many vectors as there are registers: first row, first place, vectors."""
    vectors = layer.row // layer.lanes
    high = max(1, code.registers // vectors)
    for row, rows in code.strips(layer.kernel[0], min(high, layer.kernel[0])):
        for start, count in code.strips(vectors, fits(vectors, code.registers)):
            tile = [(y, x * layer.lanes) for y in range(rows) for x in range(count)]
            yield row, start * layer.lanes, tile


def write_turn(module: ir.Module, layer: Convolution, name: str) -> Code:
    """The weights as :func:`write_deep` reads them."""
    code = Code(module, name, [FLOATS, FLOATS], layer.lanes)
    weights, turned = code.arguments
    with (
        code.loop(layer.kernel[0]) as row,
        code.loop(layer.span) as place,
        code.loop(layer.outputs) as channel,
    ):
        at = (row * layer.span + place) * up(layer.outputs, layer.lanes) + channel
        turned[at] = weights[channel * layer.patch + row * layer.row + (place + layer.start)]
    return code.end()
