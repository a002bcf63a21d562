"""Writes the function that takes a client's steps, or answers examples: which kernel comes when, and where
its numbers lie."""

from itertools import pairwise

from fedcohort.data.augment import LUMA
from fedcohort.engines.vector import convolution, dense, descent, examples, slopes, tail
from fedcohort.engines.vector.language import BYTE, INT, POINTER, REAL, Array, Code, Value
from fedcohort.engines.vector.layout import Convolution, Dense, Layout, up
from fedcohort.engines.vector.memory import Region, Scratch

# What a program takes, in this order. An array that a client has no use for is missing.
ARRAYS = {
    **dict.fromkeys((
        "weights", "slope", "velocity", "second", "center", "offset", "drift", "buffers",
        "x", "looks", "colours", "scale", "shift", "losses", "rates", "scratch", "answers",
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
        # What goes into each layer, the logits, and the slopes at them, of images one sample after the other.
        sizes = [layout.head.stride, *(layer.result.stride for layer in layers)]
        self.inputs = [scratch.take_each(size) for size in sizes]
        self.slopes = [Region(scratch.take(layer.input.size), 0) for layer in images]
        self.slopes += [scratch.take_each(size) for size in sizes[len(images) :]]
        # What each layer gives, and the slope at it: not what the next one reads, if a tail lies between.
        self.outputs, self.output_slopes = self.inputs[1:], self.slopes[1:]
        self.told: dict[int, Region] = {}
        self.known: dict[int, Array] = {}
        for number, layer in enumerate(layers):
            if layer.tail:
                self.outputs[number], self.output_slopes[number] = (
                    scratch.take_each(layer.output.stride) for _ in range(2)
                )
                self.told[number] = scratch.take_each(2 * layer.wide)
                self.known[number] = scratch.take(len(tail.Known._fields) * layer.wide)
        self.winners = [scratch.take_each(layer.output.stride) for layer in images]
        self.turned = [scratch.take(up(layer.outputs, lanes) * layer.patch) for layer in images]
        self.noted = scratch.take(max(map(slopes.noted, images)))
        self.planes, self.changed = scratch.take(layout.head.size), scratch.take(layout.head.size)
        scratch.take(
            lanes * max(layer.output.channels for layer in layers)
        )  # pixels beyond the last one's row
        self.is_wide = convolution.is_wide(images[0])
        self.drawn = sum(map(tail.drawn, layers))  # by dropout, for a sample

    def stages(self) -> list[list[int]]:
        """Layers that a sample can pass one after the other: BatchNorm has to wait for the whole batch, and
        dense layers take it at once."""
        layers, stages = self.layout.layers, [[0]]
        for number, (before, layer) in enumerate(pairwise(layers), 1):
            if before.norm or isinstance(layer, Dense):
                stages.append([])
            stages[-1].append(number)
        return stages

    def write(self) -> None:
        """Step after step; where there is room for answers, they are all that is wanted."""
        code, done = self.code, self.code.register(0)
        with code.loop(self.number["steps"]) as self.step:
            self.samples, self.done = self.array["sizes"][self.step], done.get()
            self.rows = self.array["rows"] + self.done
            for layer, turned in zip(self.layout.images, self.turned, strict=True):
                convolution.turn(code, layer, self.array["weights"], turned)
            for stage in self.stages():
                self.forward(stage)
            with code.either(self.array["answers"].is_given) as (answers, learns):
                with answers:
                    self.answer()
                with learns:
                    self.learn()
            done.add(self.samples)
        code.builder.ret_void()

    def answer(self) -> None:
        """The logits, as they are."""
        classes = self.layout.chain.layers[-1].shape[0]
        with self.code.loop(self.samples) as sample, self.code.loop(classes) as each:
            self.array["answers"][(self.done + sample) * classes + each] = self.inputs[-1].of(sample)[each]

    def learn(self) -> None:
        self.lose()
        with self.code.loop(self.layout.images[-1].end, self.code.lanes) as place:
            self.array["slope"][place] = self.code.zeros()
        for stage in reversed(self.stages()):
            self.backward(stage)
        self.move()

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
            with code.loop(self.samples) as sample:
                self.measure(last, sample)
        if layer.norm:
            told, known = self.told[last].start, self.known[last]
            tail.settle(code, layer, told, known, weights, self.array["buffers"], self.samples)

    def measure(self, number: int, sample: Value) -> None:
        """What BatchNorm has to know of a sample."""
        layer = self.layout.layers[number]
        if layer.norm:
            given, told = self.outputs[number].of(sample), self.told[number].of(sample)
            tail.measure(self.code, layer, given, told)

    def through(self, number: int, sample: Value) -> None:
        """Back through it."""
        layer = self.layout.layers[number]
        if layer.norm:
            given, slope = self.outputs[number].of(sample), self.output_slopes[number].of(sample)
            tail.through(self.code, layer, given, self.known[number], slope)

    def enter(self, number: int, sample: Value) -> None:
        """What a layer reads, where the one before did not write it."""
        if number == 0:
            self.fetch(self.rows[sample], sample, self.array["looks"] + (self.done + sample) * 5)
        elif number - 1 in self.known:
            layer, given = self.layout.layers[number - 1], self.outputs[number - 1].of(sample)
            keeps, into = self.keeps(number - 1, sample), self.inputs[number].of(sample)
            tail.forward(self.code, layer, given, self.known[number - 1], keeps, into)

    def leave(self, number: int, sample: Value) -> None:
        """Back through what lies behind a layer."""
        if number in self.known:
            layer, given = self.layout.layers[number], self.outputs[number].of(sample)
            slope, into = self.slopes[number + 1].of(sample), self.output_slopes[number].of(sample)
            keeps = self.keeps(number, sample)
            tail.backward(self.code, layer, given, self.known[number], keeps, slope, into)

    def keeps(self, number: int, sample: Value) -> Array:
        """What dropout keeps of a layer's results: of all samples those of one layer, then of the next."""
        before, own = (
            sum(map(tail.drawn, self.layout.layers[:number])),
            tail.drawn(self.layout.layers[number]),
        )
        return self.array["keeps"] + (self.done * self.drawn + self.samples * before + sample * own)

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
        self.measure(number, sample)

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
        layer = self.layout.layers[last]
        if layer.norm:
            tail.sum_up(code, layer, self.known[last], self.array["slope"], self.samples)
        self.dense_backward(last)
        with code.loop(self.samples) as sample:
            for number in reversed(stage):
                self.image_backward(number, sample)
                self.leave(number - 1, sample)

    def dense_backward(self, number: int) -> None:
        layer = self.layout.layers[number]
        if not isinstance(layer, Dense):
            return
        with self.code.loop(self.samples) as sample:
            self.through(number, sample)
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
        self.through(number, sample)
        if layer.cuts and not layer.tail:
            slopes.mask(code, layer, self.outputs[number].of(sample), slope)
        slopes.bias_slopes(code, layer, slope, self.array["slope"])
        slopes.weight_slopes(code, layer, image, winners, slope, self.array["slope"], self.noted)
        if number:
            into = self.slopes[number].start
            slopes.image_slopes(code, layer, winners, slope, weights, into, self.noted)

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
