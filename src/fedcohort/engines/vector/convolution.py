"""Convolutions of one image: forward, and back to the weights and to the image before.

Forward, a tile of outputs is summed in registers, and ReLU and pooling happen before it is stored. Backward,
only outputs that count (the largest of its square, above zero) are looked at: usually one in eight.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fedcohort.engines.vector.language import (
    BYTE, INT, REAL, SHORT, Array, Code, Operand, Register, Value, most_sums, transposed,
)  # fmt: skip
from fedcohort.engines.vector.layout import Convolution, up

Cells = list[tuple[int, int]]
NEAR = 24 << 10  # bytes that the nearest cache can well keep for one thing


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


def forward_deep(
    code: Code, layer: Convolution, image: Array, turned: Array, bias: Array, out: Array, winners: Array
) -> None:
    """Lanes along the outputs; weights are :func:`turn`\\ ed."""
    lanes, output, cells = code.lanes, layer.output, square(layer)
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
    cells, total = len(square(layer)), up(layer.outputs, code.lanes) // code.lanes

    def time(shape: tuple[int, int]) -> int:
        columns, vectors = shape
        whole, rest = divmod(total, vectors)
        widths, numbers = [vectors] * whole + [rest] * bool(rest), columns * cells
        return -(-layer.output.width // columns) * sum(max(8, numbers * v, numbers + v) for v in widths)

    some = range(1, code.most + 1)
    fitting = [(c, v) for v in some for c in some if c * cells * v <= code.most and (c * cells + 1) * v < code.registers]
    return min(fitting, key=time)


def output_vectors(code: Code, layer: Convolution, abreast: int) -> Iterator[tuple[Value, int, int]]:
    """First output, number of vectors, and lanes of each that are outputs: the last vector may be short."""
    whole, rest = divmod(layer.outputs, code.lanes)
    for number, vectors in code.strips(whole, min(abreast, max(1, whole))):
        yield number * code.lanes, vectors, code.lanes
    if rest:
        yield code.value(whole * code.lanes), 1, rest


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


class Notes:
    """Lists of the slopes that count, each with where it belongs to."""

    def __init__(self, memory: Array, lists: int, room: int) -> None:
        self.ends, self.room = memory.holding(INT), room
        self.numbers = memory + 2 * lists
        self.places = (self.numbers + lists * room).holding(SHORT)

    def start(self, number: Operand) -> Value:
        """Where a list begins."""
        return self.ends.code.value(number) * self.room

    def append(self, end: Register, wanted: Value, numbers: Value, places: Value) -> None:
        columns = (self.numbers, numbers), (self.places, places)
        end.set(end.code.append(end.get(), wanted, *columns))

    @contextmanager
    def each(self, number: Value) -> Iterator[tuple[Value, Value]]:
        """What is written inside is done for every slope of a list: a vector of it, and its place."""
        code = number.code
        with code.loop(self.ends[number], start=self.start(number)) as entry:
            yield self.numbers[entry].spread(code.lanes), self.places[entry].as_int()


def by_output(layer: Convolution) -> tuple[int, int]:
    """Lists, and what each has room for, for :func:`weight_slopes`."""
    return layer.outputs, weight_rows(layer) * up(layer.output.width, layer.lanes) + layer.lanes


def by_pixel(layer: Convolution) -> tuple[int, int]:
    """The same for :func:`image_slopes`."""
    lists = image_rows(layer) * layer.output.width * len(square(layer))
    return lists, up(image_outputs(layer), layer.lanes) + layer.lanes


def noted(layer: Convolution) -> int:
    """How many numbers both take at most."""
    return max(2 * lists * (1 + room) for lists, room in (by_output(layer), by_pixel(layer)))


def weight_rows(layer: Convolution) -> int:
    """As many rows of outputs as read what the nearest cache can hold, or enough of them to be worth it."""
    rows = max(NEAR // (4 * layer.down * (2 if layer.pools else 1)), 64 // layer.output.width, 1)
    return min(rows, layer.output.height)


def image_rows(layer: Convolution) -> int:
    return min(max(128 // layer.output.width, 1), layer.output.height)


def image_outputs(layer: Convolution) -> int:
    """As many outputs as have kernels, or the part of them that fits into registers, in the nearest cache."""
    rows, vectors = kernel_tile(layer)
    return min(layer.outputs, max(NEAR // (4 * rows * vectors * layer.lanes), layer.lanes))


def weight_slopes(
    code: Code, layer: Convolution, image: Array, winners: Array, slope: Array, gradient: Array, memory: Array
) -> None:
    """Notes for each output which slopes count, then sums over all of them in registers."""
    output, lanes, notes, rows = layer.output, code.lanes, Notes(memory, *by_output(layer)), weight_rows(layer)
    for first, kept in code.strips(layer.outputs, lanes):
        bias, total = gradient + (first + layer.bias), code.register(code.zeros())
        with code.loop(output.height) as y, code.loop(output.width) as x:
            total.add(slope.vector(y * output.row + x * output.channels + first + output.first))
        bias[0] = bias.vector(0) + code.lanes_below(code.value(kept)).choose(total.get(), code.zeros())
    with code.loop(output.height, rows) as top:
        bottom = at_most(top + rows, output.height)
        for first, kept in code.strips(layer.outputs, lanes):
            ends = [code.register(notes.start(first + each)) for each in range(kept)]
            with code.loop(bottom, start=top) as y, code.loop(output.width, lanes) as x:
                here = y * output.row + x * output.channels + first + output.first
                slopes = transposed([slope.vector(here + each * output.channels) for each in range(lanes)])
                corners = code.ramp(int(below(layer, 0, 1))) + code.value(below(layer, y, x)).as_short()
                places = [corners] * lanes
                if layer.pools:
                    here = (y * output.width + x) * output.channels + first
                    cells = [winners.vector(here + each * output.channels) for each in range(lanes)]
                    cells = transposed([cell.as_int(SHORT) for cell in cells])
                    places = [corners + to_cell(layer, cell) for cell in cells]
                real = code.lanes_below(code.value(output.width) - x)
                for number, place, end in zip(slopes, places, ends, strict=False):
                    notes.append(end, number.differs(0.0) & real, number, place)
            for each, end in enumerate(ends):
                notes.ends[first + each] = end.get()
        for row, right, tile in kernel_tiles(code, layer):
            with code.loop(layer.outputs) as channel:
                sums = dict(zip(tile, code.sums(len(tile)), strict=True))
                with notes.each(channel) as (number, place):
                    corner = image + (place + row * layer.input.row + right)
                    for (dy, dx), each in sums.items():
                        each.add_product(number, corner.vector(dy * layer.input.row + dx))
                into = gradient + (channel * layer.patch + row * layer.row + right + layer.start)
                for (dy, dx), each in sums.items():
                    real = code.lanes_below(code.value(layer.span - dx) - right)
                    at = dy * layer.row + dx
                    into[at] = into.vector(at) + real.choose(each.get(), code.zeros())


def image_slopes(
    code: Code, layer: Convolution, winners: Array, slope: Array, weights: Array, into: Array, memory: Array
) -> None:
    """Notes for each pixel which outputs count, by their cell in the square, then adds their kernels."""
    output, lanes, cells = layer.output, code.lanes, len(square(layer))
    notes, rows = Notes(memory, *by_pixel(layer)), image_rows(layer)
    with code.loop(layer.input.size, lanes) as place:
        into[place] = code.zeros()
    for begin, count in code.strips(layer.outputs, image_outputs(layer)):
        with code.loop(output.height, rows) as top:
            bottom = at_most(top + rows, output.height)
            with code.loop(bottom, start=top) as y, code.loop(output.width) as x:
                first = ((y - top) * output.width + x) * cells
                ends = [code.register(notes.start(first + cell)) for cell in range(cells)]
                for channel, kept in code.strips(count, lanes):
                    channel = begin + channel
                    numbers = slope.vector(y * output.row + x * output.channels + channel + output.first)
                    places = code.ramp(layer.patch) + (channel * layer.patch).as_short()
                    wanted = numbers.differs(0.0)
                    if kept < lanes:
                        wanted = wanted & code.lanes_below(code.value(kept))
                    for cell, end in enumerate(ends):
                        here = wanted
                        if layer.pools:
                            won = winners.vector((y * output.width + x) * output.channels + channel)
                            here = wanted & won.equals(cell)
                        notes.append(end, here, numbers, places)
                for cell, end in enumerate(ends):
                    notes.ends[first + cell] = end.get()
            for row, right, tile in kernel_tiles(code, layer):
                with code.loop(bottom, start=top) as y, code.loop(output.width) as x, code.loop(cells) as cell:
                    number = ((y - top) * output.width + x) * cells + cell
                    with code.when(notes.ends[number] > notes.start(number)):
                        here = into + (below(layer, y, x) + to_cell(layer, cell) + row * layer.input.row + right)
                        spots = [dy * layer.input.row + dx for dy, dx in tile]
                        sums = [code.register(here.vector(spot)) for spot in spots]
                        with notes.each(number) as (slopes, place):
                            kernel = weights + (place + row * layer.row + right + layer.start)
                            for (dy, dx), each in zip(tile, sums, strict=True):
                                each.add_product(slopes, kernel.vector(dy * layer.row + dx))
                        for spot, each in zip(spots, sums, strict=True):
                            here[spot] = each.get()


def at_most(value: Value, most: int) -> Value:
    return (value > most).choose(most, value)


def kernel_tile(layer: Convolution) -> tuple[int, int]:
    """Rows, and vectors in a row, of the part of a kernel that fits into registers."""
    vectors, most = layer.row // layer.lanes, most_sums(layer.lanes)
    return min(layer.kernel[0], max(1, most // vectors)), fits(vectors, most)


def kernel_tiles(code: Code, layer: Convolution) -> Iterator[tuple[Value, Value, Cells]]:
    """Such parts of a kernel: first row, first place in it, and row and place of each vector from there."""
    rows, vectors = kernel_tile(layer)
    for row, high in code.strips(layer.kernel[0], rows):
        for number, wide in code.strips(layer.row // code.lanes, vectors):
            yield row, number * code.lanes, [(dy, dx * code.lanes) for dy in range(high) for dx in range(wide)]
