"""What lies between a layer and the next: BatchNorm, then ReLU and pooling, then dropout.

BatchNorm needs the whole batch twice, forward for means and variances and backward for two sums over slopes.
Means are taken sample by sample while a sample is near, and then put together as Chan et al. do, so nothing
is lost where a mean is large and a deviation small.
"""

from collections.abc import Callable, Iterator

from fedcohort.engines.vector.convolution import largest
from fedcohort.engines.vector.language import SHORT, Array, Code, Operand, Value
from fedcohort.engines.vector.layout import Packed
from fedcohort.engines.vector.memory import Region, Scratch

SQUARE = [(0, 0), (0, 1), (1, 0), (1, 1)]
ABREAST = 4  # vectors that are summed at a time, so that one sum need not wait for itself


class TailWriter:
    """Writes the tail of one layer, from what the layer gives to what the next one reads, and back."""

    def __init__(self, code: Code, layer: Packed, scratch: Scratch, result: Region, slopes: Region) -> None:
        assert layer.tail is not None  # noqa: S101
        self.code, self.layer, self.tail, self.image = code, layer, layer.tail, layer.output
        self.result, self.result_slopes = result, slopes
        self.output, self.output_slopes = (scratch.take_each(layer.output.stride) for _ in range(2))
        self.cells = SQUARE if self.tail.pools else SQUARE[:1]
        self.drawn = layer.result.area * layer.layer.shape[0] if self.tail.drops else 0  # for a sample
        if layer.norm is not None:
            self.sampled = scratch.take_each(2 * layer.wide)  # a sample's means and squared deviations
            rows = [scratch.take(layer.wide) for _ in range(7)]
            self.mean, self.variance, self.inverse, self.scale, self.shift, *sums = rows
            self.total, self.product = sums  # backward: of slopes, and of slopes times deviations

    def vectors(self) -> Iterator[list[tuple[Value, int]]]:
        """A few vectors of channels at a time: where each begins, and how many of its lanes are channels."""
        lanes = self.code.lanes
        for first, size in self.code.strips(self.image.channels, ABREAST * lanes):
            yield [(first + at, min(lanes, size - at)) for at in range(0, size, lanes)]

    def measure(self, sample: Value) -> None:
        """Mean and squared deviations of each channel of a sample."""
        code, given, told = self.code, self.output.of(sample), self.sampled.of(sample)
        for vectors in self.vectors():
            sums, squares = code.sums(len(vectors)), code.sums(len(vectors))
            with code.loop(self.image.area) as pixel:
                for (at, _), total in zip(vectors, sums, strict=True):
                    total.add(given.vector(pixel * self.image.channels + at))
            means = [total.get() * (1 / self.image.area) for total in sums]
            with code.loop(self.image.area) as pixel:
                for (at, _), mean, square in zip(vectors, means, squares, strict=True):
                    apart = given.vector(pixel * self.image.channels + at) - mean
                    square.add_product(apart, apart)
            for (at, _), mean, square in zip(vectors, means, squares, strict=True):
                told[at], told[at + self.layer.wide] = mean, square.get()

    def settle(self, samples: Value, buffers: Array, weights: Array) -> None:
        """The batch's mean and variance, what becomes of the running ones, and the map that follows."""
        code, layer, norm = self.code, self.layer, self.layer.norm
        assert norm is not None  # noqa: S101
        count, area = samples.as_real() * float(self.image.area), float(self.image.area)
        with code.loop(layer.wide, code.lanes) as at:
            total, square = code.sums(2)
            with code.loop(samples) as sample:
                total.add(self.sampled.of(sample).vector(at))
            mean = total.get() / samples.as_real()
            with code.loop(samples) as sample:
                told = self.sampled.of(sample)
                apart = told.vector(at) - mean
                square.add(apart * apart * area + told.vector(at + layer.wide))
            inverse = (code.zeros() + 1.0) / code.intrinsic("sqrt", square.get() / count + norm.eps)
            scale = inverse * (weights + layer.scale).vector(at)
            self.mean[at], self.variance[at] = mean, square.get() / (count - 1.0)
            self.inverse[at], self.scale[at] = inverse, scale
            self.shift[at] = (weights + layer.shift).vector(at) - mean * scale
            self.total[at] = self.product[at] = code.zeros()
        channels, running = layer.layer.shape[0], buffers + norm.start
        with code.loop(channels) as channel:
            for kind, now in enumerate((self.mean, self.variance)):
                at = channel + kind * channels
                running[at] = running[at] + (now[channel] - running[at]) * norm.momentum
        running[2 * channels] = running[2 * channels] + 1.0

    def forward(self, sample: Value, keeps: Array) -> None:
        """From what the layer gave to what the next one reads."""
        code, result = self.code, self.layer.result
        given, into, keeps = self.output.of(sample), self.result.of(sample), keeps + sample * self.drawn
        for vectors in self.vectors():
            norms = [self._norm(at) for at, _ in vectors]
            with code.loop(result.height) as y, code.loop(result.width) as x:
                for (at, kept), norm in zip(vectors, norms, strict=True):
                    cells = [given.vector(place + at) for place in self._places(y, x)]
                    best, _ = largest([norm(cell) for cell in cells], self.tail.cuts)
                    best = self._dropped(best, keeps, y, x, at)
                    into[y * result.row + x * result.channels + at + result.first] = best.pick(range(kept))

    def backward(self, sample: Value, keeps: Array) -> None:
        """From the slope at what the next layer read to that at BatchNorm's result, whose sums are added up;
        without BatchNorm, to that at what the layer gave before its own ReLU."""
        code, result, layer = self.code, self.layer.result, self.layer
        given, keeps = self.output.of(sample), keeps + sample * self.drawn
        slopes, into = self.result_slopes.of(sample), self.output_slopes.of(sample)
        if (self.image.height, self.image.width) != (result.height * 2, result.width * 2) and self.tail.pools:
            with code.loop(self.image.size, code.lanes) as place:  # a last row or column that is left out
                into[place] = code.zeros()
        for vectors in self.vectors():
            sums, products = code.sums(len(vectors)), code.sums(len(vectors))
            norms = [self._norm(at) for at, _ in vectors]
            means = [self.mean.vector(at) if layer.norm else code.zeros() for at, _ in vectors]
            with code.loop(result.height) as y, code.loop(result.width) as x:
                for number, (at, kept) in enumerate(vectors):
                    slope = slopes.vector(y * result.row + x * result.channels + at + result.first)
                    slope = self._dropped(slope, keeps, y, x, at)
                    places = self._places(y, x)
                    cells = [given.vector(place + at) for place in places]
                    best, winner = largest([norms[number](cell) for cell in cells], False)
                    if self.tail.cuts:
                        slope = best.exceeds(0.0).choose(slope, code.zeros())
                    for cell, (place, value) in enumerate(zip(places, cells, strict=True)):
                        part = winner.equals(cell).choose(slope, code.zeros()) if self.tail.pools else slope
                        if layer.norm:
                            sums[number].add(part)
                            products[number].add_product(part, value - means[number])
                        elif layer.cuts:
                            part = value.exceeds(0.0).choose(part, code.zeros())
                        into[place + at] = part.pick(range(kept))
            if layer.norm:
                for (at, _), total, product in zip(vectors, sums, products, strict=True):
                    self.total[at] = self.total.vector(at) + total.get()
                    self.product[at] = self.product.vector(at) + product.get()

    def sum_up(self, samples: Value, gradient: Array) -> None:
        """The slopes at BatchNorm's weight and bias, and what :meth:`through` needs."""
        code, share = self.code, self.code.value(1.0) / (samples.as_real() * float(self.image.area))
        for vectors in self.vectors():
            for at, kept in vectors:
                real, inverse = code.lanes_below(code.value(kept)), self.inverse.vector(at)
                total, product = self.total.vector(at), self.product.vector(at) * inverse
                gradient[at + self.layer.scale] = real.choose(product, code.zeros())
                gradient[at + self.layer.shift] = real.choose(total, code.zeros())
                self.total[at], self.product[at] = total * share, product * inverse * share

    def through(self, sample: Value) -> None:
        """Back through BatchNorm, and through ReLU before it."""
        code, given, slopes = self.code, self.output.of(sample), self.output_slopes.of(sample)
        for vectors in self.vectors():
            rows = self.mean, self.scale, self.total, self.product
            known = [[row.vector(at) for row in rows] for at, _ in vectors]
            with code.loop(self.image.area) as pixel:
                for (at, kept), (mean, scale, total, product) in zip(vectors, known, strict=True):
                    place = pixel * self.image.channels + at
                    value = given.vector(place)
                    slope = (slopes.vector(place) - total - (value - mean) * product) * scale
                    if self.layer.cuts:
                        slope = value.exceeds(0.0).choose(slope, code.zeros())
                    slopes[place] = slope.pick(range(kept))

    def _norm(self, at: Value) -> Callable[[Value], Value]:
        """What BatchNorm does to a vector of these channels."""
        if self.layer.norm is None:
            return lambda value: value
        scale, shift = self.scale.vector(at), self.shift.vector(at)
        return lambda value: value * scale + shift

    def _places(self, y: Value, x: Value) -> list[Value]:
        """Where the layer's outputs begin that become one result."""
        step = 2 if self.tail.pools else 1
        return [
            ((y * step + dy) * self.image.width + (x * step + dx)) * self.image.channels
            for dy, dx in self.cells
        ]

    def _dropped(self, values: Value, keeps: Array, y: Value, x: Value, at: Operand) -> Value:
        """Some are zero, the others larger by as much."""
        share = self.tail.drops
        if not share:
            return values
        place = (y * self.layer.result.width + x) * self.layer.layer.shape[0] + at
        kept = keeps.vector(place).as_int(SHORT).as_real()
        return values * (kept * (1 / (1 - share) if share < 1 else 1.0))
