"""Convolutions of one image, backward: to the weights, and to the image before.

Only slopes that count are looked at: behind ReLU about every second, with pooling one in eight. They are
noted in lists, a few rows of the image at a time, so that what is read again and again stays near; then each
of them adds one run of numbers for each row of the kernel, summed in registers.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fedcohort.engines.vector.convolution import Cells, below, square, to_cell
from fedcohort.engines.vector.language import (
    INT,
    SHORT,
    Array,
    Code,
    Register,
    Value,
    apart,
    most_sums,
    transposed,
)
from fedcohort.engines.vector.layout import Convolution, up

NEAR = 24 << 10  # bytes that the nearest cache can keep of one thing, beside others
PIXELS = 64  # at least so many at a time: lists of a few slopes cost more than they save


class Notes:
    """Lists of slopes, each with the place where it belongs."""

    def __init__(self, memory: Array, lists: int, room: int) -> None:
        self.ends, self.room = memory.holding(INT), room
        self.numbers = memory + 2 * lists
        self.places = (self.numbers + lists * room).holding(SHORT)

    def start(self, number: Value) -> Value:
        """Where a list begins."""
        return number * self.room

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
    """Lists, and what each has room for, of :func:`weight_slopes`."""
    return layer.outputs, weight_rows(layer) * up(layer.output.width, layer.lanes) + layer.lanes


def by_pixel(layer: Convolution) -> tuple[int, int]:
    """The same of :func:`image_slopes`."""
    lists = image_rows(layer) * layer.output.width * len(square(layer.pools))
    return lists, up(image_outputs(layer), layer.lanes) + layer.lanes


def noted(layer: Convolution) -> int:
    """For how many numbers there must be memory."""
    return max(2 * lists * (1 + room) for lists, room in (by_output(layer), by_pixel(layer)))


def weight_rows(layer: Convolution) -> int:
    """Of outputs, at a time: what their kernels cover of the image is near."""
    covered = 4 * layer.down * (2 if layer.pools else 1)  # bytes
    return min(layer.output.height, max(NEAR // covered, PIXELS // layer.output.width, 1))


def image_rows(layer: Convolution) -> int:
    """Of outputs, at a time: their lists are near."""
    return min(layer.output.height, max(2 * PIXELS // layer.output.width, 1))


def image_outputs(layer: Convolution) -> int:
    """Outputs at a time: of their kernels the part that is summed in registers is near."""
    rows, vectors = kernel_part(layer)
    return min(layer.outputs, max(NEAR // (4 * rows * vectors * layer.lanes), layer.lanes))


@apart
def mask(code: Code, layer: Convolution, out: Array, slope: Array) -> None:
    """What ReLU has cut has no slope."""
    with code.loop(layer.output.size, code.lanes) as place:
        slope[place] = out.vector(place).exceeds(0.0).choose(slope.vector(place), code.zeros())


@apart
def bias_slopes(code: Code, layer: Convolution, slope: Array, gradient: Array) -> None:
    """Adds up all slopes of each output."""
    output = layer.output
    for first, kept in code.strips(layer.outputs, code.lanes):
        bias, total = gradient + (first + layer.bias), code.register(code.zeros())
        with code.loop(output.height) as y, code.loop(output.width) as x:
            total.add(slope.vector(y * output.row + x * output.channels + first + output.first))
        bias[0] = bias.vector(0) + code.lanes_below(code.value(kept)).choose(total.get(), code.zeros())


@apart
def weight_slopes(
    code: Code, layer: Convolution, image: Array, winners: Array, slope: Array, gradient: Array, memory: Array
) -> None:
    """Notes for each output where its slopes count, then adds what they saw of the image."""
    notes, rows = Notes(memory, *by_output(layer)), weight_rows(layer)
    with code.loop(layer.output.height, rows) as top:
        note_outputs(code, layer, notes, winners, slope, top, at_most(top + rows, layer.output.height))
        for row, right, part in kernel_parts(code, layer):
            with code.loop(layer.outputs) as output:
                sums = dict(zip(part, code.sums(len(part)), strict=True))
                with notes.each(output) as (number, place):
                    corner = image + (place + row * layer.input.row + right)
                    for (dy, dx), total in sums.items():
                        total.add_product(number, corner.vector(dy * layer.input.row + dx))
                into = gradient + (output * layer.patch + row * layer.row + right + layer.start)
                for (dy, dx), total in sums.items():
                    real, at = code.lanes_below(code.value(layer.span - dx) - right), dy * layer.row + dx
                    into[at] = into.vector(at) + real.choose(total.get(), code.zeros())


def note_outputs(
    code: Code, layer: Convolution, notes: Notes, winners: Array, slope: Array, top: Value, bottom: Value
) -> None:
    """A square of outputs by pixels at a time, turned so that an output's pixels lie side by side."""
    output, lanes = layer.output, code.lanes
    for first, kept in code.strips(layer.outputs, lanes):
        ends = [code.register(notes.start(first + each)) for each in range(kept)]
        with code.loop(bottom, start=top) as y, code.loop(output.width, lanes) as x:
            pixel = slope + (y * output.row + x * output.channels + first + output.first)
            slopes = transposed([pixel.vector(each * output.channels) for each in range(lanes)])
            places = [code.ramp(below(layer, 0, 1)) + below(layer, y, x).as_short()] * lanes
            if layer.pools:
                pixel = winners + ((y * output.width + x) * output.channels + first)
                won = [pixel.vector(each * output.channels).as_int(SHORT) for each in range(lanes)]
                places = [
                    place + to_cell(layer, cell) for place, cell in zip(places, transposed(won), strict=True)
                ]
            real = code.lanes_below(code.value(output.width) - x)
            for number, end in enumerate(ends):
                notes.append(end, slopes[number].differs(0.0) & real, slopes[number], places[number])
        for number, end in enumerate(ends):
            notes.ends[first + number] = end.get()


@apart
def image_slopes(
    code: Code, layer: Convolution, winners: Array, slope: Array, weights: Array, into: Array, memory: Array
) -> None:
    """Notes for each pixel and each cell of its square which outputs count, then adds their kernels."""
    notes, rows = Notes(memory, *by_pixel(layer)), image_rows(layer)
    output, cells = layer.output, len(square(layer.pools))
    with code.loop(layer.input.size, code.lanes) as place:
        into[place] = code.zeros()
    for first, count in code.strips(layer.outputs, image_outputs(layer)):
        with code.loop(output.height, rows) as top:
            bottom = at_most(top + rows, output.height)
            with code.loop(bottom, start=top) as y, code.loop(output.width) as x:
                note_pixel(code, layer, notes, winners, slope, (y, x, top), (first, count))
            for row, right, part in kernel_parts(code, layer):
                spots = [dy * layer.input.row + dx for dy, dx in part]
                turns = code.loop(bottom, start=top), code.loop(output.width), code.loop(cells)
                with turns[0] as y, turns[1] as x, turns[2] as cell:
                    number = ((y - top) * output.width + x) * cells + cell
                    corner = below(layer, y, x) + to_cell(layer, cell) + row * layer.input.row + right
                    with code.when(notes.ends[number] > notes.start(number)):
                        here = into + corner
                        sums = [code.register(here.vector(spot)) for spot in spots]
                        with notes.each(number) as (slopes, place):
                            kernel = weights + (place + row * layer.row + right + layer.start)
                            for (dy, dx), total in zip(part, sums, strict=True):
                                total.add_product(slopes, kernel.vector(dy * layer.row + dx))
                        for spot, total in zip(spots, sums, strict=True):
                            here[spot] = total.get()


def note_pixel(
    code: Code, layer: Convolution, notes: Notes, winners: Array, slope: Array,
    pixel: tuple[Value, Value, Value], outputs: tuple[Value, int],
) -> None:  # fmt: skip
    """Which of so many outputs count at a pixel, whose row is counted from the third."""
    output, lanes, (y, x, top), (first, count) = layer.output, code.lanes, pixel, outputs
    cells = len(square(layer.pools))
    number = ((y - top) * output.width + x) * cells
    ends = [code.register(notes.start(number + cell)) for cell in range(cells)]
    for start, kept in code.strips(count, lanes):
        channel = first + start
        slopes = slope.vector(y * output.row + x * output.channels + channel + output.first)
        places = code.ramp(layer.patch) + (channel * layer.patch).as_short()
        counts = slopes.differs(0.0) & code.lanes_below(code.value(kept))
        for cell, end in enumerate(ends):
            wins = counts
            if layer.pools:
                wins = counts & winners.vector((y * output.width + x) * output.channels + channel).equals(
                    cell
                )
            notes.append(end, wins, slopes, places)
    for cell, end in enumerate(ends):
        notes.ends[number + cell] = end.get()


def at_most(value: Value, most: int) -> Value:
    return (value > most).choose(most, value)


def kernel_part(layer: Convolution) -> tuple[int, int]:
    """Rows of a kernel, and vectors of each, that are summed in registers."""
    vectors, most = layer.row // layer.lanes, most_sums(layer.lanes)
    parts = -(-vectors // most)
    return min(layer.kernel[0], max(1, most // vectors)), -(-vectors // parts)


def kernel_parts(code: Code, layer: Convolution) -> Iterator[tuple[Value, Value, Cells]]:
    """First row, first place in it, and row and place of each vector from there."""
    rows, vectors = kernel_part(layer)
    for row, high in code.strips(layer.kernel[0], rows):
        for number, wide in code.strips(layer.row // code.lanes, vectors):
            yield (
                row,
                number * code.lanes,
                [(dy, dx * code.lanes) for dy in range(high) for dx in range(wide)],
            )
