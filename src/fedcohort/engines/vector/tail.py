"""What lies between a layer and the next: BatchNorm, then ReLU and pooling, then dropout.

BatchNorm needs the whole batch twice: forward for means and variances, backward for two sums over slopes.
Means are taken sample by sample while a sample is near and then put together (Chan, Golub and LeVeque 1983),
so nothing is lost where a mean is large and a deviation small.

``given`` is always what the layer gave for a sample, ``known`` what is known of its channels in this batch.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fedcohort.engines.vector.convolution import largest, square
from fedcohort.engines.vector.language import SHORT, Array, Code, Value, apart
from fedcohort.engines.vector.layout import Packed

ABREAST = 2  # vectors that are summed at a time, so that a sum need not always wait for itself


class Known(NamedTuple):
    """A row each of ``layer.wide`` numbers."""

    mean: Array
    variance: Array  # as running variances are: of the samples less one
    inverse: Array  # of the deviation
    scale: Array  # BatchNorm is this ...
    shift: Array  # ... and this
    total: Array  # backward: of slopes, and later what it moves each slope by
    product: Array  # the same of slopes times deviations from the mean

    @classmethod
    def of(cls, layer: Packed, known: Array) -> "Known":
        return cls(*(known + row * layer.wide for row in range(len(cls._fields))))


def drawn(layer: Packed) -> int:
    """How many numbers dropout draws for a sample."""
    return layer.result.area * layer.layer.shape[0] if layer.tail and layer.tail.drops else 0


def vectors(code: Code, layer: Packed) -> Iterator[list[tuple[Value, int]]]:
    """A few vectors of channels at a time: where each begins, and how many of its lanes are channels."""
    lanes = code.lanes
    for first, size in code.strips(layer.output.channels, ABREAST * lanes):
        yield [(first + at, min(lanes, size - at)) for at in range(0, size, lanes)]


@apart
def measure(code: Code, layer: Packed, given: Array, told: Array) -> None:
    """A sample's mean of each channel, and in a second row its squared deviations from it."""
    image = layer.output
    for few in vectors(code, layer):
        sums, squares = code.sums(len(few)), code.sums(len(few))
        with code.loop(image.area) as pixel:
            for (at, _), total in zip(few, sums, strict=True):
                total.add(given.vector(pixel * image.channels + at))
        means = [total.get() * (1 / image.area) for total in sums]
        with code.loop(image.area) as pixel:
            for (at, _), mean, each in zip(few, means, squares, strict=True):
                off = given.vector(pixel * image.channels + at) - mean
                each.add_product(off, off)
        for (at, _), mean, each in zip(few, means, squares, strict=True):
            told[at], told[at + layer.wide] = mean, each.get()


@apart
def settle(
    code: Code, layer: Packed, told: Array, known: Array, weights: Array, buffers: Array, samples: Value
) -> None:
    """What all samples together tell of the channels, and what that makes of the running statistics."""
    norm, rows, area = layer.norm, Known.of(layer, known), float(layer.output.area)
    assert norm is not None  # noqa: S101  # who has none does not ask
    count = samples.as_real() * area
    with code.loop(layer.wide, code.lanes) as at:
        total, squares = code.sums(2)
        with code.loop(samples) as sample:
            total.add(told.vector(sample * (2 * layer.wide) + at))
        mean = total.get() / samples.as_real()
        with code.loop(samples) as sample:
            own = told + (sample * (2 * layer.wide) + at)
            off = own.vector(0) - mean
            squares.add(own.vector(layer.wide) + off * off * area)
        deviation = code.intrinsic("sqrt", squares.get() / count + norm.eps)
        inverse = (code.zeros() + 1.0) / deviation
        scale = weights.vector(at + layer.scale) * inverse
        shift = weights.vector(at + layer.shift) - mean * scale
        found = mean, squares.get() / (count - 1.0), inverse, scale, shift, code.zeros(), code.zeros()
        for row, values in zip(rows, found, strict=True):
            row[at] = values
    channels, running = layer.layer.shape[0], buffers + norm.start
    with code.loop(channels) as channel:
        for kind, row in enumerate((rows.mean, rows.variance)):
            at = channel + kind * channels
            running[at] = running[at] + (row[channel] - running[at]) * norm.momentum
    running[2 * channels] = running[2 * channels] + 1.0


@apart
def forward(code: Code, layer: Packed, given: Array, known: Array, keeps: Array, into: Array) -> None:
    """From what the layer gave to what the next one reads."""
    tail, result = layer.tail, layer.result
    assert tail is not None  # noqa: S101
    for few in vectors(code, layer):
        norms = [normed(layer, known, at) for at, _ in few]
        with code.loop(result.height) as y, code.loop(result.width) as x:
            for (at, kept), norm in zip(few, norms, strict=True):
                values = [norm(given.vector(place + at)) for place in places(layer, y, x)]
                best = dropped(layer, largest(values, tail.cuts)[0], keeps, y, x, at)
                into[y * result.row + x * result.channels + at + result.first] = best.pick(range(kept))


@apart
def backward(
    code: Code, layer: Packed, given: Array, known: Array, keeps: Array, slopes: Array, into: Array
) -> None:
    """From the slope at what the next layer read to that at what BatchNorm gave, with its two sums; where
    there is none, to that at what the layer gave before its own ReLU."""
    tail, image, result, rows = layer.tail, layer.output, layer.result, Known.of(layer, known)
    assert tail is not None  # noqa: S101
    if tail.pools and image.area != 4 * result.area:  # a last row or column that no square contains
        with code.loop(image.size, code.lanes) as place:
            into[place] = code.zeros()
    for few in vectors(code, layer):
        norms = [normed(layer, known, at) for at, _ in few]
        means = [rows.mean.vector(at) if layer.norm else code.zeros() for at, _ in few]
        totals, products = code.sums(len(few)), code.sums(len(few))
        with code.loop(result.height) as y, code.loop(result.width) as x:
            for number, (at, kept) in enumerate(few):
                slope = slopes.vector(y * result.row + x * result.channels + at + result.first)
                slope = dropped(layer, slope, keeps, y, x, at)
                values = {place: given.vector(place + at) for place in places(layer, y, x)}
                best, winner = largest([norms[number](value) for value in values.values()], False)
                if tail.cuts:
                    slope = best.exceeds(0.0).choose(slope, code.zeros())
                for cell, (place, value) in enumerate(values.items()):
                    part = winner.equals(cell).choose(slope, code.zeros()) if tail.pools else slope
                    if layer.norm:
                        totals[number].add(part)
                        products[number].add_product(part, value - means[number])
                    elif layer.cuts:
                        part = value.exceeds(0.0).choose(part, code.zeros())
                    into[place + at] = part.pick(range(kept))
        for (at, _), total, product in zip(few, totals, products, strict=True):
            if layer.norm:
                rows.total[at] = rows.total.vector(at) + total.get()
                rows.product[at] = rows.product.vector(at) + product.get()


@apart
def sum_up(code: Code, layer: Packed, known: Array, gradient: Array, samples: Value) -> None:
    """The slopes at BatchNorm's weight and bias, and how much each of them moves the slopes before it."""
    rows, share = Known.of(layer, known), code.value(1.0) / (samples.as_real() * float(layer.output.area))
    with code.loop(layer.wide, code.lanes) as at:
        real, inverse = code.lanes_below(code.value(layer.layer.shape[0]) - at), rows.inverse.vector(at)
        total, product = rows.total.vector(at), rows.product.vector(at) * inverse
        gradient[at + layer.scale] = real.choose(product, code.zeros())
        gradient[at + layer.shift] = real.choose(total, code.zeros())
        rows.total[at], rows.product[at] = total * share, product * inverse * share


@apart
def through(code: Code, layer: Packed, given: Array, known: Array, slopes: Array) -> None:
    """Back through BatchNorm, and through ReLU before it."""
    rows, image = Known.of(layer, known), layer.output
    for few in vectors(code, layer):
        with code.loop(image.area) as pixel:
            for at, kept in few:
                place = pixel * image.channels + at
                value, moved = given.vector(place), slopes.vector(place) - rows.total.vector(at)
                slope = moved - (value - rows.mean.vector(at)) * rows.product.vector(at)
                slope = slope * rows.scale.vector(at)
                if layer.cuts:
                    slope = value.exceeds(0.0).choose(slope, code.zeros())
                slopes[place] = slope.pick(range(kept))


def normed(layer: Packed, known: Array, at: Value) -> Callable[[Value], Value]:
    """What BatchNorm, if there is one, does to a vector of these channels."""
    if layer.norm is None:
        return lambda value: value
    rows = Known.of(layer, known)
    scale, shift = rows.scale.vector(at), rows.shift.vector(at)
    return lambda value: value * scale + shift


def places(layer: Packed, y: Value, x: Value) -> list[Value]:
    """Where the layer's outputs begin that become one result."""
    image, pools = layer.output, bool(layer.tail and layer.tail.pools)
    step, cells = (2 if pools else 1), square(pools)
    return [((y * step + dy) * image.width + (x * step + dx)) * image.channels for dy, dx in cells]


def dropped(layer: Packed, values: Value, keeps: Array, y: Value, x: Value, at: Value) -> Value:
    """Some are zero, the others larger by as much."""
    share = layer.tail.drops if layer.tail else 0.0
    if not share:
        return values
    place = (y * layer.result.width + x) * layer.layer.shape[0] + at
    kept = keeps.vector(place).as_int(SHORT).as_real()
    return values * (kept * (1 / (1 - share) if share < 1 else 1.0))
