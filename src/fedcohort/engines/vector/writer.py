"""Writes the function that takes a client's steps: which kernel comes when, and where its numbers lie."""

from fedcohort.data.augment import LUMA
from fedcohort.engines.vector import convolution, dense, descent, examples
from fedcohort.engines.vector.language import BYTE, INT, POINTER, REAL, Array, Code, Value
from fedcohort.engines.vector.layout import Convolution, Dense, Layout, up
from fedcohort.engines.vector.memory import Region, Scratch
from fedcohort.engines.vector.tail import TailWriter

# What a program takes, in this order. An array that a client has no use for is missing.
ARRAYS = {
    **dict.fromkeys((
        "weights", "slope", "velocity", "second", "center", "offset", "drift", "buffers",
        "x", "looks", "colours", "scale", "shift", "losses", "rates", "scratch",
    ), REAL),
    **dict.fromkeys(("y", "rows", "sizes"), INT),
    "keeps": BYTE,
}  # fmt: skip
NUMBERS = {
    "steps": INT,
    "capacity": INT,
    "nesterov": INT,
    "lr": REAL,
    "pull": REAL,
    "decay": REAL,
    "momentum": REAL,
}


class Writer:
    """Writes the function ``descend`` of a network, piece by piece."""

    def __init__(self, layout: Layout) -> None:
        kinds = [*[POINTER] * len(ARRAYS), *NUMBERS.values()]
        self.layout, self.code = layout, (code := Code("descend", kinds, layout.lanes))
        given = dict(zip((*ARRAYS, *NUMBERS), code.function.args, strict=True))
        self.array = {name: code.array(given[name], kind) for name, kind in ARRAYS.items()}
        self.number = {name: Value(code, given[name]) for name in NUMBERS}
        layers, images, lanes = layout.layers, layout.images, layout.lanes
        self.scratch = scratch = Scratch(self.array["scratch"], self.number["capacity"])
        # What goes into each layer, and in the end the logits; and the slope at it: images are done one by one.
        sizes = [layout.head.stride, *(layer.result.stride for layer in layers)]
        self.inputs = [scratch.take_each(size) for size in sizes]
        self.slopes = [Region(scratch.take(layer.input.size), 0) for layer in images]
        self.slopes += [scratch.take_each(size) for size in sizes[len(images) :]]
        self.tails = {
            number: TailWriter(code, layer, scratch, self.inputs[number + 1], self.slopes[number + 1])
            for number, layer in enumerate(layers) if layer.tail
        }  # fmt: skip
        # What each layer gives, and the slope at it.
        self.outputs, self.output_slopes = self.inputs[1:], self.slopes[1:]
        for number, tail in self.tails.items():
            self.outputs[number], self.output_slopes[number] = tail.output, tail.output_slopes
        self.winners = [scratch.take_each(layer.output.stride) for layer in images]
        self.turned = [scratch.take(up(layer.outputs, lanes) * layer.patch) for layer in images]
        self.noted = scratch.take(max(map(convolution.noted, images), default=0))
        self.planes, self.changed = scratch.take(layout.head.size), scratch.take(layout.head.size)
        scratch.take(lanes * max(layer.output.channels for layer in layers))  # pixels beyond the last one's row
        self.is_wide = bool(images) and convolution.is_wide(images[0])
        self.drawn = sum(tail.drawn for tail in self.tails.values())  # by dropout, for a sample

    def stages(self) -> list[list[int]]:
        """Layers that a sample can pass one after the other: BatchNorm has to wait for the whole batch, and
        dense layers take it at once."""
        stages: list[list[int]] = [[]]
        for number, layer in enumerate(self.layout.layers):
            stages[-1].append(number)
            if layer.norm or not layer.layer.kind.convolves:
                stages.append([])
            elif not self.layout.chain.kinds[number + 1].convolves:
                stages.append([])
        return stages[:-1]

    def write(self) -> None:
        """Step after step."""
        code, done = self.code, self.code.register(0)
        with code.loop(self.number["steps"]) as self.step:
            self.samples, self.done = self.array["sizes"][self.step], done.get()
            self.rows = self.array["rows"] + self.done
            for layer, turned in zip(self.layout.images, self.turned, strict=True):
                convolution.turn(code, layer, self.array["weights"], turned)
            for stage in self.stages():
                self.forward(stage)
            self.lose()
            with code.loop(self.layout.images[-1].end if self.layout.images else 0, code.lanes) as place:
                self.array["slope"][place] = code.zeros()
            for stage in reversed(self.stages()):
                self.backward(stage)
            self.move()
            done.add(self.samples)
        code.builder.ret_void()

    def forward(self, stage: list[int]) -> None:
        code, last, weights = self.code, stage[-1], self.array["weights"]
        with code.loop(self.samples) as sample:
            for number in stage:
                self.enter(number, sample)
                self.image_forward(number, sample)
        layer = self.layout.layers[last]
        if isinstance(layer, Dense):
            kernel, bias = weights + layer.start, weights + layer.bias
            x, out = self.inputs[last].start, self.outputs[last].start
            dense.forward(code, layer, x, kernel, bias, out, self.samples)
        if layer.norm:
            with code.loop(self.samples) as sample:
                self.tails[last].measure(sample)
            self.tails[last].settle(self.samples, self.array["buffers"], weights)

    def enter(self, number: int, sample: Value) -> None:
        """What a layer reads, where the one before did not write it."""
        if number == 0:
            self.fetch(self.rows[sample], sample, self.array["looks"] + (self.done + sample) * 5)
        elif number - 1 in self.tails:
            self.tails[number - 1].forward(sample, self.keeps(number - 1))

    def leave(self, number: int, sample: Value) -> None:
        """Back through what lies behind a layer."""
        if number in self.tails:
            self.tails[number].backward(sample, self.keeps(number))

    def keeps(self, number: int) -> Array:
        """What dropout keeps of this batch's outputs of a layer."""
        before = sum(tail.drawn for other, tail in self.tails.items() if other < number)
        return self.array["keeps"] + (self.done * self.drawn + self.samples * before)

    def fetch(self, row: Value, sample: Value, looks: Array) -> None:
        """An example, to where the first layer reads it."""
        code, head = self.code, self.layout.head
        example, into = self.array["x"] + row * (head.channels * head.area), self.inputs[0].of(sample)
        planes = self.planes if self.is_wide else None
        with code.either(self.array["looks"].is_given) as (changes, plain):
            with changes:
                if head.channels in LUMA:
                    examples.change(code, head, example, self.changed, looks, self.array["colours"])
                examples.place(code, head, self.changed, into, planes, looks[4] > 0.5)
            with plain:
                examples.place(code, head, example, into, planes, None)

    def image_forward(self, number: int, sample: Value) -> None:
        layer, weights = self.layout.layers[number], self.array["weights"]
        if not isinstance(layer, Convolution):
            return
        bias, out = weights + layer.bias, self.outputs[number].of(sample)
        winners = self.winners[number].of(sample).holding(BYTE)
        if number == 0 and self.is_wide:
            kernel = weights + layer.start
            convolution.forward_wide(self.code, layer, self.planes, kernel, bias, out, winners)
        else:
            image = self.inputs[number].of(sample)
            convolution.forward_deep(self.code, layer, image, self.turned[number], bias, out, winners)

    def lose(self) -> None:
        """The batch's loss, and its slope at the logits."""
        code, total = self.code, self.code.register(0.0)
        share = code.value(1.0) / self.samples.as_real()
        classes = self.layout.chain.layers[-1].shape[0]
        with code.loop(self.samples) as sample:
            logits, slope = self.inputs[-1].of(sample), self.slopes[-1].of(sample)
            label, maps = self.array["y"][self.rows[sample]], (self.array["scale"], self.array["shift"])
            total.add(descent.cross_entropy(code, classes, logits, slope, label, share, *maps))
        self.array["losses"][self.step] = total.get()

    def backward(self, stage: list[int]) -> None:
        code, last = self.code, stage[-1]
        if self.layout.layers[last].norm:
            self.tails[last].sum_up(self.samples, self.array["slope"])
            with code.loop(self.samples) as sample:
                self.tails[last].through(sample)
        self.dense_backward(last)
        with code.loop(self.samples) as sample:
            for number in reversed(stage):
                self.image_backward(number, sample)
                self.leave(number - 1, sample)

    def dense_backward(self, number: int) -> None:
        layer = self.layout.layers[number]
        if not isinstance(layer, Dense):
            return
        x, slope = self.inputs[number].start, self.output_slopes[number].start
        dense.weight_slopes(self.code, layer, x, slope, self.array["slope"], self.samples)
        if number:
            before = self.layout.layers[number - 1]
            cut = isinstance(before, Dense) and before.cuts and not before.tail
            weights, into = self.array["weights"] + layer.start, self.slopes[number].start
            dense.input_slopes(self.code, layer, x, slope, weights, into, self.samples, cut)

    def image_backward(self, number: int, sample: Value) -> None:
        layer, code, weights = self.layout.layers[number], self.code, self.array["weights"]
        if not isinstance(layer, Convolution):
            return
        image, slope = self.inputs[number].of(sample), self.output_slopes[number].of(sample)
        winners = self.winners[number].of(sample).holding(BYTE)
        if layer.cuts and not layer.tail:
            convolution.mask(code, layer, self.outputs[number].of(sample), slope)
        convolution.weight_slopes(code, layer, image, winners, slope, self.array["slope"], self.noted)
        if number:
            into = self.slopes[number].start
            convolution.image_slopes(code, layer, winners, slope, weights, into, self.noted)

    def move(self) -> None:
        """The optimiser's step, after a pull and an offset and before a drift."""
        code, size, array, number = self.code, self.layout.size, self.array, self.number
        weights, slope, velocity = array["weights"], array["slope"], array["velocity"]
        descent.add(code, size, slope, weights, number["pull"], array["center"])
        descent.add(code, size, slope, array["offset"], 1.0)
        with code.either(array["second"].is_given) as (adam, sgd):
            with adam:
                rates = array["rates"] + self.step * 2
                descent.adam(code, size, weights, slope, velocity, array["second"], rates, number["decay"])
            with sgd:
                numbers = (number[name] for name in ("lr", "decay", "momentum", "nesterov"))
                descent.sgd(code, size, weights, slope, velocity, *numbers)
        descent.add(code, size, weights, array["drift"], number["lr"])
