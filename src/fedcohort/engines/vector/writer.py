"""Writes the function that takes a client's steps: which kernel comes when, and where its numbers lie."""

from typing import NamedTuple

from fedcohort.data.augment import LUMA
from fedcohort.engines.vector import convolution, dense, descent, examples
from fedcohort.engines.vector.language import BYTE, INT, POINTER, REAL, Array, Code, Value
from fedcohort.engines.vector.layout import LINE, Layout, up

# What a program takes, in this order. An array that a client has no use for is missing.
REALS = (
    "weights", "slope", "velocity", "second", "center", "offset", "drift",
    "x", "looks", "colours", "scale", "shift", "losses", "rates", "scratch",
)  # fmt: skip
INTS = "y", "rows", "sizes"
NUMBERS = {
    "steps": INT,
    "capacity": INT,
    "nesterov": INT,
    "lr": REAL,
    "pull": REAL,
    "decay": REAL,
    "momentum": REAL,
}
BEYOND = 5 * LINE  # vectors may reach over the end of a region


class Region(NamedTuple):
    """Memory of the same size for each sample of a batch."""

    start: Array
    stride: int

    def of(self, sample: Value) -> Array:
        return self.start + sample * self.stride


class Scratch:
    """Memory that the program needs for itself, cut into regions."""

    def __init__(self, start: Array, capacity: Value) -> None:
        self.next, self.capacity = start, capacity
        self.once = self.each = 0  # numbers in all, and for each sample of a batch

    def take(self, size: int) -> Array:
        here, size = self.next, up(size, LINE) + BEYOND
        self.once, self.next = self.once + size, here + size
        return here

    def take_each(self, stride: int) -> Region:
        here = self.take(0)
        self.each, self.next = self.each + stride, self.next + self.capacity * stride
        return Region(here, stride)


class Writer:
    """Writes the function ``descend`` of a network, piece by piece."""

    def __init__(self, layout: Layout) -> None:
        kinds = [*[POINTER] * (len(REALS) + len(INTS)), *NUMBERS.values()]
        self.layout, self.code = layout, (code := Code("descend", kinds, layout.lanes))
        names = (*REALS, *INTS, *NUMBERS)
        given = dict(zip(names, code.function.args, strict=True))
        self.array = {
            name: code.array(given[name], INT if name in INTS else REAL) for name in (*REALS, *INTS)
        }
        self.number = {name: Value(code, given[name]) for name in NUMBERS}
        images, flats, lanes = layout.images, layout.dense, layout.lanes
        self.scratch = scratch = Scratch(self.array["scratch"], self.number["capacity"])
        # Of each layer: what goes in, its slope, and which cell of a square has won.
        self.pixels = [scratch.take_each(layer.input.stride) for layer in images]
        self.flats = [scratch.take_each(layer.stride) for layer in flats]
        self.logits, self.logit_slopes = (scratch.take_each(flats[-1].width) for _ in range(2))
        self.pixel_slopes = [Region(scratch.take(layer.input.size), 0) for layer in images]
        self.flat_slopes = [scratch.take_each(layer.stride) for layer in flats]
        self.winners = [scratch.take_each(layer.output.stride) for layer in images]
        self.turned = [scratch.take(up(layer.outputs, lanes) * layer.patch) for layer in images]
        pixels = [max(layer.output.height * layer.output.width, 4 * layer.outputs) for layer in images]
        self.noted = scratch.take(3 * max(pixels, default=0)).holding(INT)
        self.planes, self.changed = scratch.take(layout.head.size), scratch.take(layout.head.size)
        self.is_wide = bool(images) and convolution.is_wide(images[0])

    def write(self) -> None:
        """Step after step: images forward and back one by one, dense layers with all samples of a batch."""
        code, done = self.code, self.code.register(0)
        with code.loop(self.number["steps"]) as step:
            samples, rows = self.array["sizes"][step], self.array["rows"] + done.get()
            for number, layer in enumerate(self.layout.images):
                convolution.turn(code, layer, self.array["weights"], self.turned[number])
            with code.loop(samples) as sample:
                self.fetch(rows[sample], sample, self.array["looks"] + (done.get() + sample) * 5)
                self.images_forward(sample)
            self.dense_forward(samples)
            self.lose(step, samples, rows)
            self.dense_backward(samples)
            with code.loop(self.layout.images[-1].end if self.layout.images else 0, code.lanes) as place:
                self.array["slope"][place] = code.zeros()
            with code.loop(samples) as sample:
                self.images_backward(sample)
            self.move(step)
            done.add(samples)
        code.builder.ret_void()

    def fetch(self, row: Value, sample: Value, looks: Array) -> None:
        """An example, to where the first layer reads it."""
        code, head = self.code, self.layout.head
        example = self.array["x"] + row * (head.channels * head.height * head.width)
        into = (self.pixels or self.flats)[0].of(sample)
        planes = self.planes if self.is_wide else None
        with code.either(self.array["looks"].is_given) as (changes, plain):
            with changes:
                if head.channels in LUMA:
                    examples.change(code, head, example, self.changed, looks, self.array["colours"])
                examples.place(code, head, self.changed, into, planes, looks[4] > 0.5)
            with plain:
                examples.place(code, head, example, into, planes, None)

    def images_forward(self, sample: Value) -> None:
        weights, outs = self.array["weights"], [*self.pixels[1:], self.flats[0]]
        for number, layer in enumerate(self.layout.images):
            bias, out = weights + layer.bias, outs[number].of(sample)
            winners = self.winners[number].of(sample).holding(BYTE)
            if number == 0 and self.is_wide:
                kernel = weights + layer.start
                convolution.forward_wide(self.code, layer, self.planes, kernel, bias, out, winners)
            else:
                image = self.pixels[number].of(sample)
                convolution.forward_deep(self.code, layer, image, self.turned[number], bias, out, winners)

    def dense_forward(self, samples: Value) -> None:
        weights, outs = self.array["weights"], [*self.flats[1:], self.logits]
        for layer, x, out in zip(self.layout.dense, self.flats, outs, strict=True):
            kernel, bias = weights + layer.start, weights + layer.bias
            dense.forward(self.code, layer, x.start, kernel, bias, out.start, samples)

    def lose(self, step: Value, samples: Value, rows: Array) -> None:
        """The batch's loss, and its slope at the logits."""
        code, total, share = self.code, self.code.register(0.0), self.code.value(1.0) / samples.as_real()
        classes = self.layout.chain.layers[-1].shape[0]
        with code.loop(samples) as sample:
            logits, slope = self.logits.of(sample), self.logit_slopes.of(sample)
            label, maps = self.array["y"][rows[sample]], (self.array["scale"], self.array["shift"])
            total.add(descent.cross_entropy(code, classes, logits, slope, label, share, *maps))
        self.array["losses"][step] = total.get()

    def dense_backward(self, samples: Value) -> None:
        code, layers = self.code, self.layout.dense
        slopes = [*self.flat_slopes[1:], self.logit_slopes]
        for number, layer in reversed(list(enumerate(layers))):
            x, slope = self.flats[number].start, slopes[number].start
            dense.weight_slopes(code, layer, x, slope, self.array["slope"], samples)
            if number or self.layout.images:
                weights, into = self.array["weights"] + layer.start, self.flat_slopes[number].start
                cut = number > 0 and layers[number - 1].cuts
                dense.input_slopes(code, layer, x, slope, weights, into, samples, cut)

    def images_backward(self, sample: Value) -> None:
        code, weights, gradient, noted = self.code, self.array["weights"], self.array["slope"], self.noted
        outs, slopes = [*self.pixels[1:], self.flats[0]], [*self.pixel_slopes[1:], self.flat_slopes[0]]
        for number, layer in reversed(list(enumerate(self.layout.images))):
            image, out, slope = (each[number].of(sample) for each in (self.pixels, outs, slopes))
            winners = self.winners[number].of(sample).holding(BYTE)
            if layer.cuts:
                convolution.mask(code, layer, out, slope)
            convolution.weight_slopes(code, layer, image, winners, slope, gradient, noted)
            if number:
                into = self.pixel_slopes[number].start
                convolution.image_slopes(code, layer, winners, slope, weights, into, noted)

    def move(self, step: Value) -> None:
        """The optimiser's step, after a pull and an offset and before a drift."""
        code, size, array, number = self.code, self.layout.size, self.array, self.number
        weights, slope, velocity = array["weights"], array["slope"], array["velocity"]
        descent.add(code, size, slope, weights, number["pull"], array["center"])
        descent.add(code, size, slope, array["offset"], 1.0)
        with code.either(array["second"].is_given) as (adam, sgd):
            with adam:
                rates = array["rates"] + step * 2
                descent.adam(code, size, weights, slope, velocity, array["second"], rates, number["decay"])
            with sgd:
                numbers = (number[name] for name in ("lr", "decay", "momentum", "nesterov"))
                descent.sgd(code, size, weights, slope, velocity, *numbers)
        descent.add(code, size, weights, array["drift"], number["lr"])
