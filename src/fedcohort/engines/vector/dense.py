"""Linear layers of a batch: three products, each summed in registers, a block of rows by a block of vectors."""

from llvmlite import ir

from fedcohort.engines.vector.convolution import FLOATS
from fedcohort.engines.vector.language import INT, Code
from fedcohort.engines.vector.layout import SAMPLES, Dense


def block(total: int, most: int) -> int:
    """The size of blocks that cover ``total`` with the least overlap; the larger of two that are as good."""
    return min(range(1, min(total, most) + 1), key=lambda size: (-(-total // size) * size, -size))


def write_forward(module: ir.Module, layer: Dense, name: str) -> Code:
    """``out = x @ weights.T + bias``: lanes along the inputs, summed up at the end."""
    code = Code(module, f"{name}_forward", [FLOATS, FLOATS, FLOATS, FLOATS, INT], layer.lanes)
    x, weights, bias, out, samples = code.arguments
    tall = code.registers // SAMPLES
    with code.loop(layer.outputs, tall) as output, code.loop(samples, SAMPLES) as sample:
        sums = [[code.register(code.zero()) for _ in range(tall)] for _ in range(SAMPLES)]
        near, row = x + sample * layer.stride, weights + output * layer.row
        with code.loop(layer.row, layer.lanes) as place:
            given = [(near + place).vector(each * layer.stride) for each in range(SAMPLES)]
            for number in range(tall):
                weight = (row + place).vector(number * layer.row)
                for each in range(SAMPLES):
                    sums[each][number].add_product(given[each], weight)
        for each in range(SAMPLES):
            target = out + ((sample + each) * layer.width + output)
            for number in range(tall):
                value = sums[each][number].get().total() + (bias + output)[number]
                target[number] = (value < 0.0).choose(0.0, value) if layer.layer.kind.cuts else value
    return code.end()


def write_backward(module: ir.Module, layer: Dense, name: str, first: bool, cuts: bool) -> Code:
    """From the slopes at the outputs to those of weights, biases and inputs; ``cuts``: the inputs are a dense
    layer's after ReLU."""
    code = Code(module, f"{name}_backward", [FLOATS] * 5 + [INT], layer.lanes)
    x, slope, weights, gradient, into, samples = code.arguments
    lanes, vectors = layer.lanes, layer.row // layer.lanes
    tall = SAMPLES  # outputs at a time for the weights, samples at a time for the inputs
    wide = block(vectors, code.registers // tall)
    with code.loop(layer.outputs, tall) as output, code.blocks(vectors, wide) as place:
        sums = {(o, v): code.register(code.zero()) for o in range(tall) for v in range(wide)}
        with code.loop(samples) as sample:
            near, error = x + (sample * layer.stride + place * lanes), slope + (sample * layer.width + output)
            given = [near.vector(v * lanes) for v in range(wide)]
            for o in range(tall):
                number = error[o].spread(lanes)
                for v in range(wide):
                    sums[o, v].add_product(number, given[v])
        target = gradient + ((output * layer.row + layer.start) + place * lanes)
        for (o, v), each in sums.items():
            target[o * layer.row + v * lanes] = each.get()
    with code.loop(layer.width, lanes) as output:
        total = code.register(code.zero())
        with code.loop(samples) as sample:
            total.add((slope + sample * layer.width).vector(output))
        gradient[output + layer.bias_start] = total.get()
    if first:
        return code.end()
    with code.loop(samples, tall) as sample, code.blocks(vectors, wide) as place:
        sums = {(s, v): code.register(code.zero()) for s in range(tall) for v in range(wide)}
        with code.loop(layer.outputs) as output:
            row = weights + ((output * layer.row + layer.start) + place * lanes)
            given = [row.vector(v * lanes) for v in range(wide)]
            for s in range(tall):
                number = (slope + (sample * layer.width + output))[s * layer.width].spread(lanes)
                for v in range(wide):
                    sums[s, v].add_product(number, given[v])
        at = sample * layer.stride + place * lanes
        for (s, v), each in sums.items():
            offset, value = s * layer.stride + v * lanes, each.get()
            if cuts:
                value = (x + at).vector(offset).exceeds(0.0).choose(value, code.zero())
            (into + at)[offset] = value
    return code.end()
