"""All local steps of a client as one compiled function of a network."""

import ctypes
import threading
from typing import Any

import torch
from llvmlite import ir
from torch import Tensor

from fedcohort.core.optimiser import rule
from fedcohort.core.round.local_training import Job
from fedcohort.data.augment import LUMA
from fedcohort.engines.chain import Chain
from fedcohort.engines.vector import convolution, dense, steps
from fedcohort.engines.vector.convolution import FLOATS, INTS
from fedcohort.engines.vector.language import BYTE, INT, REAL, Array, Code
from fedcohort.engines.vector.layout import LINE, SAMPLES, Layout, up
from fedcohort.engines.vector.machine import compiled
from fedcohort.models.flat import Weights
from fedcohort.util.descent import BETAS
from fedcohort.util.keyed import generator

# What a program takes, in this order; arrays may be missing where a client has no such thing.
TAKES: dict[str, Any] = {
    **dict.fromkeys(("weights", "slope", "velocity", "second", "center", "offset", "drift"), FLOATS),
    **dict.fromkeys(("x", "looks", "colours", "scale", "shift", "losses", "rates", "scratch"), FLOATS),
    **dict.fromkeys(("y", "rows", "sizes"), INTS),
    **dict.fromkeys(("steps", "capacity", "nesterov"), INT),
    **dict.fromkeys(("lr", "pull", "decay", "momentum"), REAL),
}
BETWEEN = 5 * LINE  # vectors may reach beyond the end of a region


class Scratch:
    """Regions of one piece of memory, some of them for each sample of a batch."""

    def __init__(self, start: Array, capacity: Any) -> None:
        self.next, self.capacity = start, capacity
        self.once = self.each = 0

    def take(self, size: int) -> Array:
        here, size = self.next, up(size, LINE) + BETWEEN
        self.once, self.next = self.once + size, here + size
        return here

    def take_each(self, size: int) -> Array:
        here = self.take(0)
        self.each, self.next = self.each + size, self.next + self.capacity * size
        return here


def write(module: ir.Module, layout: Layout) -> Scratch:
    """The function ``descend`` and all that it calls; what memory it needs."""
    lanes, images, flats = layout.lanes, layout.images, layout.dense
    code = Code(module, "descend", list(TAKES.values()), lanes, public=True)
    given: dict[str, Any] = dict(zip(TAKES, code.arguments, strict=True))
    weights, slope = given["weights"], given["slope"]
    scratch = Scratch(given["scratch"], given["capacity"])

    pixels = [scratch.take_each(layer.input.stride) for layer in images]
    flat = scratch.take_each(flats[0].stride)
    pixel_slopes = [scratch.take(layer.input.size) for layer in images]
    flat_slope = scratch.take_each(flats[0].stride)
    winners = [scratch.take_each(up(layer.output.size, 4 * LINE) // 4) for layer in images]
    turned = [scratch.take(layer.kernel[0] * layer.span * up(layer.outputs, lanes)) for layer in images]
    noted = scratch.take(max((3 * max(l.output.size // l.outputs, 4 * l.outputs) for l in images), default=0))
    values = [scratch.take_each(layer.width) for layer in flats]
    slopes = [scratch.take_each(layer.width) for layer in flats]
    planes, changed = scratch.take(layout.head.size), scratch.take(layout.head.size)

    wide = bool(images) and convolution.is_wide(images[0], True)
    place = steps.write_place(module, layout.head, lanes, wide)
    change = steps.write_change(module, layout.head, lanes) if layout.head.channels in LUMA else None
    turns = [convolution.write_turn(module, layer, f"turn{n}") for n, layer in enumerate(images)]
    forward = [
        (convolution.write_wide if wide and not n else convolution.write_deep)(module, layer, f"image{n}")
        for n, layer in enumerate(images)
    ]
    backward = [
        convolution.write_backward(module, layer, f"image{n}", n == 0) for n, layer in enumerate(images)
    ]
    dense_forward = [dense.write_forward(module, layer, f"dense{n}") for n, layer in enumerate(flats)]
    dense_backward = [
        dense.write_backward(
            module, layer, f"dense{n}", n == 0 and not images, n > 0 and flats[n - 1].layer.kind.cuts
        )
        for n, layer in enumerate(flats)
    ]
    loss = steps.write_loss(module, flats[-1], lanes)
    clear = steps.write_clear(module, lanes)
    pulls, sgd = steps.write_pulls(module, layout.size, lanes), steps.write_sgd(module, layout.size, lanes)
    adam, add = steps.write_adam(module, layout.size, lanes), steps.write_add(module, layout.size, lanes)

    done = code.register(0)
    with code.loop(given["steps"]) as step:
        samples, rows = given["sizes"][step], given["rows"] + done.get()
        if images:
            clear(code, slope, images[-1].end)
        for n, turn in enumerate(turns):
            if not (wide and n == 0):
                turn(code, weights, turned[n])
        with code.loop(samples) as sample:
            image = given["x"] + rows[sample] * layout.head.channels * layout.head.height * layout.head.width
            into = (pixels[0] if images else flat) + sample * layout.head.stride
            if change is None:
                place(code, image, into, planes, 0)
            else:
                with code.either(given["looks"].is_given) as (yes, no):
                    with yes:
                        looks = given["looks"] + (done.get() + sample) * 5
                        change(code, image, changed, looks, given["colours"])
                        place(code, changed, into, planes, (looks[4] > 0.5).as_int())
                    with no:
                        place(code, image, into, planes, 0)
            for n, layer in enumerate(images):
                near = planes if wide and not n else pixels[n] + sample * layer.input.stride
                kernel = weights + layer.start if wide and not n else turned[n]
                target, stride = (pixels[n + 1] if n + 1 < len(images) else flat), layer.output.stride
                codes = Array(code, winners[n].start, BYTE) + sample * up(layer.output.size, 4 * LINE)
                forward[n](code, near, kernel, weights + layer.bias_start, target + sample * stride, codes)
        for n, flat_layer in enumerate(flats):
            x = values[n - 1] if n else flat
            bias = weights + flat_layer.bias_start
            dense_forward[n](code, x, weights + flat_layer.start, bias, values[n], samples)
        lost = given["losses"] + step
        lost[0] = 0.0
        share = code.value(1.0) / samples.as_real()
        with code.loop(samples) as sample:
            at = sample * flats[-1].width
            label = given["y"][rows[sample]]
            loss(code, values[-1] + at, slopes[-1] + at, label, share, given["scale"], given["shift"], lost)
        for n in reversed(range(len(flats))):
            x, back = (values[n - 1], slopes[n - 1]) if n else (flat, flat_slope)
            dense_backward[n](code, x, slopes[n], weights, slope, back, samples)
        with code.loop(samples) as sample:
            for n in reversed(range(len(images))):
                layer, last = images[n], n + 1 == len(images)
                out, error = (
                    (flat, flat_slope + sample * layer.output.stride)
                    if last
                    else (pixels[n + 1], pixel_slopes[n + 1])
                )
                codes = Array(code, winners[n].start, BYTE) + sample * up(layer.output.size, 4 * LINE)
                backward[n](
                    code, pixels[n] + sample * layer.input.stride, out + sample * layer.output.stride, codes, error,
                    weights, slope, pixel_slopes[n], Array(code, noted.start, INT),
                )  # fmt: skip
        pulls(code, weights, slope, given["center"], given["offset"], given["pull"])
        with code.either(given["second"].is_given) as (yes, no):
            with yes:
                adam(
                    code,
                    weights,
                    slope,
                    given["velocity"],
                    given["second"],
                    given["rates"] + step * 2,
                    given["decay"],
                )
            with no:
                sgd(
                    code,
                    weights,
                    slope,
                    given["velocity"],
                    *(given[k] for k in ("lr", "decay", "momentum", "nesterov")),
                )
        with code.when(given["drift"].is_given):
            add(code, weights, given["drift"], given["lr"])
        done.add(samples)
    code.end()
    return scratch


class Program:
    """The steps of any client with this network on examples of this shape."""

    def __init__(self, chain: Chain, shape: tuple[int, ...], lanes: int) -> None:
        self.layout, module = Layout(chain, shape, lanes), ir.Module("fedcohort")
        self.scratch = write(module, self.layout)
        self.engine = compiled(str(module), lanes)
        kinds = {FLOATS: ctypes.c_void_p, INTS: ctypes.c_void_p, INT: ctypes.c_int64, REAL: ctypes.c_float}
        of_python = ctypes.CFUNCTYPE(None, *(kinds[kind] for kind in TAKES.values()))
        self.call = of_python(self.engine.get_function_address("descend"))
        self.own = threading.local()

    def takes(self, job: Job) -> bool:
        """Whether the job's examples are what the compiled code relies on."""
        rows = torch.cat(job.plan) if job.plan else torch.zeros(0, dtype=torch.int64)
        if not len(rows) or job.x.dtype != torch.float32 or not job.x.is_contiguous():
            return False
        if rows.min() < 0 or rows.max() >= min(len(job.x), len(job.y)):
            return False
        labels = job.y[rows]
        if labels.min() < 0 or labels.max() >= self.layout.dense[-1].layer.shape[0]:
            return False
        head = self.layout.head
        return job.augment is None or (
            head.channels in LUMA and head.height * head.width % self.layout.lanes == 0
        )

    def descend(self, job: Job, weights: Weights) -> Tensor | None:
        """A client's local steps, in place; the loss of each. None, and nothing done, where a loss is not a
        number: zeros that are skipped here would have made more of it."""
        sizes = torch.tensor([len(batch) for batch in job.plan])
        capacity = up(int(sizes.max()), SAMPLES)
        if getattr(self.own, "capacity", 0) < capacity:
            self.own.capacity = capacity
            self.own.memory = torch.zeros(self.scratch.once + self.scratch.each * capacity)
        step = rule(job.local, job.view.lr)
        pull, center, offset, drift = job.anchor
        pack = self.layout.pack
        packed = pack(weights.params)
        arrays: dict[str, Any] = {
            "weights": packed, "slope": torch.empty_like(packed),
            "velocity": torch.zeros_like(packed) if step.adam or step.momentum else None,
            "second": torch.zeros_like(packed) if step.adam else None,
            "center": pack(center) if pull and center is not None else None,
            "offset": None if offset is None else pack(offset),
            "drift": None if drift is None else pack(drift),
            "x": job.x, "y": job.y, "rows": torch.cat(job.plan), "sizes": sizes,
            "losses": torch.empty(len(sizes)), "scratch": self.own.memory,
            **job.logits()._asdict(),
        }  # fmt: skip
        if step.adam:
            number = torch.arange(1, 1 + len(sizes), dtype=torch.float64)
            lr, spread = step.lr / (1 - BETAS[0] ** number), (1 - BETAS[1] ** number).rsqrt()
            arrays["rates"] = torch.stack([lr, spread], 1).float()
        if job.augment is not None:
            draw = generator(*job.key, "augment")
            arrays["looks"] = torch.cat([job.augment.looks(len(batch), draw) for batch in job.plan])
            arrays["colours"] = torch.cat([job.augment.mean.flatten(), job.augment.std.flatten()])
        numbers = {
            "steps": len(sizes), "capacity": capacity, "nesterov": int(step.nesterov),
            "lr": step.lr, "pull": pull, "decay": step.weight_decay, "momentum": step.momentum,
        }  # fmt: skip
        held = {name: each.contiguous() for name, each in arrays.items() if each is not None}
        self.call(*(held[name].data_ptr() if name in held else numbers.get(name) for name in TAKES))
        if not held["losses"].isfinite().all() or not packed.isfinite().all():
            return None
        weights.params.copy_(self.layout.unpack(packed))
        return held["losses"]
