"""The loss and the optimiser's step."""

from fedcohort.engines.vector.language import Array, Code, Operand, Value
from fedcohort.util.descent import BETAS, EPSILON


def cross_entropy(
    code: Code,
    classes: int,
    logits: Array,
    slope: Array,
    label: Value,
    share: Value,
    scale: Array,
    shift: Array,
) -> Value:
    """Of one sample, times ``share``; and the slope at its logits, which a LogitMap changes first."""
    for values, change in ((scale, Value.__mul__), (shift, Value.__add__)):
        with code.when(values.is_given), code.loop(classes) as each:
            logits[each] = change(logits[each], values[each])
    top, total = code.register(logits[0]), code.register(0.0)
    with code.loop(classes) as each:
        top.set((logits[each] > top.get()).choose(logits[each], top.get()))
    with code.loop(classes) as each:
        slope[each] = code.intrinsic("exp", logits[each] - top.get())
        total.add(slope[each])
    with code.loop(classes) as each:
        slope[each] = slope[each] / total.get() * share
    slope[label] = slope[label] - share
    with code.when(scale.is_given), code.loop(classes) as each:
        slope[each] = slope[each] * scale[each]
    return (code.intrinsic("log", total.get()) + top.get() - logits[label]) * share


def add(
    code: Code, size: int, into: Array, other: Array, factor: Operand, center: Array | None = None
) -> None:
    """Adds ``factor * (other - center)``, if there is another."""
    with code.when((center or other).is_given), code.loop(size, code.lanes) as at:
        move = other.vector(at) - center.vector(at) if center else other.vector(at)
        into[at] = into.vector(at) + move * factor


def sgd(
    code: Code, size: int, weights: Array, slope: Array, velocity: Array,
    lr: Value, decay: Value, momentum: Value, nesterov: Value,
) -> None:  # fmt: skip
    """A step with weight decay and, where there is a velocity, momentum."""
    with code.loop(size, code.lanes) as at:
        now = weights.vector(at)
        move = code.register(slope.vector(at) + now * decay)
        with code.when(velocity.is_given):
            fast = velocity.vector(at) * momentum + move.get()
            velocity[at] = fast
            move.set(nesterov.differs(0).choose(move.get() + fast * momentum, fast))
        weights[at] = now - move.get() * lr


def adam(
    code: Code,
    size: int,
    weights: Array,
    slope: Array,
    first: Array,
    second: Array,
    rates: Array,
    decay: Value,
) -> None:
    """``rates`` are the learning rate and one over the scale of the deviation, both as of this step."""
    with code.loop(size, code.lanes) as at:
        now, mean = weights.vector(at), first.vector(at)
        move = slope.vector(at) + now * decay
        mean = mean + (move - mean) * (1 - BETAS[0])
        square = second.vector(at) * BETAS[1] + move * move * (1 - BETAS[1])
        first[at], second[at] = mean, square
        weights[at] = now - mean / (code.intrinsic("sqrt", square) * rates[1] + EPSILON) * rates[0]
