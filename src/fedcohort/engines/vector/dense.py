"""Linear layers of a batch: three products, each summed in registers, a few rows by a few vectors at a time.

Samples are taken a few at a time, too: beyond the last come numbers that nobody reads.
"""

from fedcohort.engines.vector.language import Array, Code, Value, apart
from fedcohort.engines.vector.layout import SAMPLES, Dense


@apart
def forward(
    code: Code, layer: Dense, x: Array, weights: Array, bias: Array, out: Array, samples: Value
) -> None:
    """``x @ weights.T + bias``: lanes along the inputs, added up at the end."""
    outputs = code.block // SAMPLES
    tile = [(sample, output) for output in range(outputs) for sample in range(SAMPLES)]
    with code.loop(layer.outputs, outputs) as output, code.loop(samples, SAMPLES) as sample:
        sums = dict(zip(tile, code.sums(len(tile)), strict=True))
        with code.loop(layer.row, code.lanes) as place:
            near, rows = x + (sample * layer.stride + place), weights + (output * layer.row + place)
            given = [near.vector(each * layer.stride) for each in range(SAMPLES)]
            columns = [rows.vector(each * layer.row) for each in range(outputs)]
            for s, o in tile:
                sums[s, o].add_product(given[s], columns[o])
        for (s, o), each in sums.items():
            value = each.get().total() + bias[output + o]
            target = out + ((sample + s) * layer.wide + output)
            target[o] = (value < 0.0).choose(0.0, value) if layer.cuts else value


@apart
def weight_slopes(code: Code, layer: Dense, x: Array, slope: Array, gradient: Array, samples: Value) -> None:
    """``slope.T @ x``, and the sum of the slopes for the biases."""
    wide, tall = block(layer.row // code.lanes, code.block // SAMPLES), SAMPLES
    tile = [(output, vector) for output in range(tall) for vector in range(wide)]
    with code.loop(layer.outputs, tall) as output, code.blocks(layer.row // code.lanes, wide) as first:
        sums = dict(zip(tile, code.sums(len(tile)), strict=True))
        with code.loop(samples) as sample:
            near, numbers = x + (sample * layer.stride + first * code.lanes), slope + sample * layer.wide
            given = [near.vector(vector * code.lanes) for vector in range(wide)]
            spread = [(numbers + output)[each].spread(code.lanes) for each in range(tall)]
            for o, v in tile:
                sums[o, v].add_product(spread[o], given[v])
        target = gradient + (output * layer.row + first * code.lanes + layer.start)
        for (o, v), each in sums.items():
            target[o * layer.row + v * code.lanes] = each.get()
    with code.loop(layer.wide, code.lanes) as place:
        total = code.register(code.zeros())
        with code.loop(samples) as sample:
            total.add(slope.vector(sample * layer.wide + place))
        gradient[place + layer.bias] = total.get()


@apart
def input_slopes(
    code: Code, layer: Dense, x: Array, slope: Array, weights: Array, into: Array, samples: Value, cut: bool
) -> None:
    """``slope @ weights``; nothing where ReLU has ``cut`` the input."""
    wide = block(layer.row // code.lanes, code.block // SAMPLES)
    tile = [(sample, vector) for sample in range(SAMPLES) for vector in range(wide)]
    with code.loop(samples, SAMPLES) as sample, code.blocks(layer.row // code.lanes, wide) as first:
        sums = dict(zip(tile, code.sums(len(tile)), strict=True))
        with code.loop(layer.outputs) as output:
            row, numbers = weights + (output * layer.row + first * code.lanes), slope + sample * layer.wide
            given = [row.vector(vector * code.lanes) for vector in range(wide)]
            spread = [(numbers + output)[s * layer.wide].spread(code.lanes) for s in range(SAMPLES)]
            for s, v in tile:
                sums[s, v].add_product(spread[s], given[v])
        start = sample * layer.stride + first * code.lanes
        for (s, v), each in sums.items():
            place, value = start + (s * layer.stride + v * code.lanes), each.get()
            into[place] = x.vector(place).exceeds(0.0).choose(value, code.zeros()) if cut else value


def block(total: int, most: int) -> int:
    """The size of blocks that cover ``total`` with the least overlap; the larger of two that are as good."""
    return min(range(1, min(total, most) + 1), key=lambda size: (-(-total // size) * size, -size))
