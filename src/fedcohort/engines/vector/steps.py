"""What is between the layers' kernels: examples in, the loss, and the optimiser's step."""

from llvmlite import ir

from fedcohort.data.augment import LUMA
from fedcohort.engines.vector.convolution import FLOATS
from fedcohort.engines.vector.language import INT, REAL, Code, Value
from fedcohort.engines.vector.layout import Dense, Image
from fedcohort.util.descent import BETAS, EPSILON


def write_place(module: ir.Module, image: Image, lanes: int, planes_too: bool) -> Code:
    """Puts an example, which comes plane by plane, where the first layer reads it; perhaps mirrored."""
    code = Code(module, "place", [FLOATS, FLOATS, FLOATS, INT], lanes)
    example, pixels, planes, mirrored = code.arguments
    row, high = image.row // image.channels, image.height + 2 * image.margin[0]
    with code.either(mirrored.differs(0)) as branches:
        for branch, flips in zip(branches, (True, False), strict=True):
            with branch, code.loop(image.height) as y, code.loop(image.width) as x:
                at = code.value(image.width - 1) - x if flips else x
                for channel in range(image.channels):
                    number = (example + (y * image.width + at))[channel * image.height * image.width]
                    (pixels + (y * image.row + x * image.channels))[image.first + channel] = number
                    if planes_too:
                        corner = image.margin[0] * row + image.margin[1] + channel * high * row
                        (planes + (y * row + x))[corner] = number
    return code.end()


def write_loss(module: ir.Module, layer: Dense, lanes: int) -> Code:
    """Cross-entropy of one sample, added to ``loss``, and its slope at the logits, both times ``share``."""
    code = Code(module, "cross_entropy", [FLOATS, FLOATS, INT, REAL, FLOATS, FLOATS, FLOATS], lanes)
    logits, slope, label, share, scale, shift, loss = code.arguments
    classes = layer.layer.shape[0]
    for values, change in ((scale, Value.__mul__), (shift, Value.__add__)):
        with code.when(values.is_given), code.loop(classes) as each:
            logits[each] = change(logits[each], values[each])
    top, total = code.register(logits[0]), code.register(0.0)
    with code.loop(classes, start=1) as each:
        top.set((logits[each] > top.get()).choose(logits[each], top.get()))
    with code.loop(classes) as each:
        power = code.intrinsic("exp", logits[each] - top.get())
        slope[each] = power
        total.add(power)
    own = code.intrinsic("log", total.get()) + top.get() - logits[label]
    loss[0] = loss[0] + own * share
    with code.loop(classes) as each:
        slope[each] = slope[each] / total.get() * share
    slope[label] = slope[label] - share
    with code.when(scale.is_given), code.loop(classes) as each:
        slope[each] = slope[each] * scale[each]
    return code.end()


def write_pulls(module: ir.Module, size: int, lanes: int) -> Code:
    """Adds ``pull * (weights - center)``, if there is a center, and ``offset``, if given, to the slope."""
    code = Code(module, "pulls", [FLOATS] * 4 + [REAL], lanes)
    weights, slope, center, offset, pull = code.arguments
    with code.when(center.is_given), code.loop(size, lanes) as at:
        slope[at] = slope.vector(at) + (weights.vector(at) - center.vector(at)) * pull
    with code.when(offset.is_given), code.loop(size, lanes) as at:
        slope[at] = slope.vector(at) + offset.vector(at)
    return code.end()


def write_sgd(module: ir.Module, size: int, lanes: int) -> Code:
    """SGD with weight decay, momentum (if there is a velocity) and Nesterov's."""
    code = Code(module, "sgd", [FLOATS] * 3 + [REAL] * 3 + [INT], lanes)
    weights, slope, velocity, lr, decay, momentum, nesterov = code.arguments
    with code.loop(size, lanes) as at:
        now = weights.vector(at)
        move = code.register(slope.vector(at) + now * decay)
        with code.when(velocity.is_given):
            fast = velocity.vector(at) * momentum + move.get()
            velocity[at] = fast
            move.set(nesterov.differs(0).choose(move.get() + fast * momentum, fast))
        weights[at] = now - move.get() * lr
    return code.end()


def write_adam(module: ir.Module, size: int, lanes: int) -> Code:
    """Adam; ``rates`` are the learning rate and one over the deviation's scale, each corrected for the
    step."""
    code = Code(module, "adam", [FLOATS] * 5 + [REAL], lanes)
    weights, slope, first, second, rates, decay = code.arguments
    with code.loop(size, lanes) as at:
        now, mean = weights.vector(at), first.vector(at)
        move = slope.vector(at) + now * decay
        mean = mean + (move - mean) * (1 - BETAS[0])
        spread = second.vector(at) * BETAS[1] + move * move * (1 - BETAS[1])
        first[at], second[at] = mean, spread
        deviation = code.intrinsic("sqrt", spread) * rates[1] + EPSILON
        weights[at] = now - mean / deviation * rates[0]
    return code.end()


def write_add(module: ir.Module, size: int, lanes: int) -> Code:
    """Adds a multiple of one vector to another."""
    code = Code(module, "add", [FLOATS, FLOATS, REAL], lanes)
    into, other, factor = code.arguments
    with code.loop(size, lanes) as at:
        into[at] = into.vector(at) + other.vector(at) * factor
    return code.end()


def write_clear(module: ir.Module, lanes: int) -> Code:
    code = Code(module, "clear", [FLOATS, INT], lanes)
    into, size = code.arguments
    with code.loop(size, lanes) as at:
        into[at] = code.zero()
    return code.end()


def write_change(module: ir.Module, image: Image, lanes: int) -> Code:
    """Jitters brightness, contrast and saturation of an example and takes its colour away, as
    :class:`~fedcohort.data.augment.Augment` does; ``looks`` are the example's three factors and whether it is
    grey, ``scale`` each channel's mean and deviation."""
    code = Code(module, "change", [FLOATS, FLOATS, FLOATS, FLOATS], lanes)
    example, changed, looks, scale = code.arguments
    area = image.height * image.width
    channels = range(image.channels)

    def limited(value: Value) -> Value:
        value = (value < 0.0).choose(0.0, value)
        return (value > 1.0).choose(1.0, value)

    def grey(colours: list[Value]) -> Value:
        parts = [colour * weight for colour, weight in zip(colours, LUMA[image.channels], strict=True)]
        return sum(parts[1:], parts[0])

    means, deviations = ([scale[len(channels) * kind + c].spread(lanes) for c in channels] for kind in (0, 1))
    total = code.register(code.zero())
    with code.loop(area, lanes) as at:
        colours = [
            limited(((example + at).vector(c * area) * deviations[c] + means[c]) * looks[0]) for c in channels
        ]
        for c in channels:
            (changed + at)[c * area] = colours[c]
        total.add(grey(colours))
    middle = (total.get().total() / float(area)).spread(lanes)
    with code.loop(area, lanes) as at:
        colours = [(changed + at).vector(c * area) for c in channels]
        colours = [limited(c * looks[1] + middle * (code.value(1.0) - looks[1])) for c in colours]
        plain = grey(colours) * (code.value(1.0) - looks[2])
        colours = [limited(c * looks[2] + plain) for c in colours]
        plain = grey(colours)
        for c in channels:
            shown = (looks[3] > 0.5).choose(plain, colours[c])
            (changed + at)[c * area] = (shown - means[c]) / deviations[c]
    return code.end()
