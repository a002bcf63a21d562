"""All local steps of a client, or the answers to many examples, as one compiled function of a network."""

import ctypes
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedcohort.core.optimiser import rule
from fedcohort.core.round.local_training import GATHER, LocalSteps
from fedcohort.data.augment import LUMA
from fedcohort.engines.chain import Chain
from fedcohort.engines.vector.language import INT, REAL
from fedcohort.engines.vector.layout import LINE, SAMPLES, Layout, up
from fedcohort.engines.vector.machine import compiled
from fedcohort.engines.vector.writer import ARRAYS, NUMBERS, Writer
from fedcohort.models.flat import Weights
from fedcohort.util.descent import BETAS
from fedcohort.util.keyed import generator
from fedcohort.util.warnings import told_after

LARGEST, MOST = 512, 1 << 27  # samples of a batch, and numbers that a worker may keep for them
FEWEST = 8  # numbers of a channel in a batch, below which BatchNorm makes too much of their rounding
ROOM = 64  # examples that are answered at a time, where this worker has no memory yet
NO_STEP = 0, 0.0, 0.0, 0.0, 0.0  # Nesterov or not, rates and shares
PATIENCE = 1.0  # seconds of writing and compiling, after which a word is said; most networks take less


class Program:
    """The steps of any client with this network on examples of this shape."""

    def __init__(self, chain: Chain, shape: tuple[int, ...], lanes: int) -> None:
        self.layout = Layout(chain, shape, lanes)
        writer = Writer(self.layout)
        with told_after(PATIENCE, "compiling kernels for this network: a few seconds, the first time"):
            writer.write()
            self.machine = compiled(str(writer.code.module), lanes)
        self.once, self.each, self.drawn = writer.scratch.once, writer.scratch.each, writer.drawn
        kinds = {INT: ctypes.c_int64, REAL: ctypes.c_float}
        takes: list[Any] = [*[ctypes.c_void_p] * len(ARRAYS), *(kinds[kind] for kind in NUMBERS.values())]
        self.call = ctypes.CFUNCTYPE(None, *takes)(self.machine.get_function_address("descend"))
        self.own = threading.local()

    def takes(self, job: LocalSteps) -> bool:
        """Whether the job's examples are such as the compiled code relies on."""
        if not job.plan or job.x.dtype != torch.float32 or not job.x.is_contiguous():
            return False
        rows, head = torch.cat(job.plan), self.layout.head
        if rows.min() < 0 or rows.max() >= len(job.x) or max(map(len, job.plan)) > LARGEST:
            return False
        if self.once + self.each * capacity(job) > MOST:
            return False
        if not self.settles(min(map(len, job.plan))):
            return False
        labels = job.y[rows]
        if labels.min() < 0 or labels.max() >= self.layout.chain.layers[-1].shape[0]:
            return False
        even = head.height * head.width % self.layout.lanes == 0
        return job.augment is None or (head.channels in LUMA and even)

    def settles(self, samples: int) -> bool:
        """Whether a batch of so many tells every BatchNorm enough of its channels."""
        return all(samples * layer.output.area >= FEWEST for layer in self.layout.layers if layer.norm)

    def descend(self, job: LocalSteps, weights: Weights) -> Tensor | None:
        """A client's local steps, in place; the loss of each. None, and nothing done, where something is not
        a number any more: zeros that are skipped here would have made more of it."""
        step, (pull, center, offset, drift) = rule(job.local, job.view.lr), job.anchor
        sizes, pack = torch.tensor([len(batch) for batch in job.plan]), self.layout.pack
        packed, buffers = pack(weights.params), weights.buffers.clone()
        given: dict[str, Tensor | None] = {
            "weights": packed, "slope": torch.zeros_like(packed), "buffers": buffers,
            "velocity": torch.zeros_like(packed) if step.adam or step.momentum else None,
            "second": torch.zeros_like(packed) if step.adam else None,
            "rates": adam_rates(step.lr, len(sizes)) if step.adam else None,
            "center": pack(center) if pull and center is not None else None,
            "offset": None if offset is None else pack(offset),
            "drift": None if drift is None else pack(drift),
            "x": job.x, "y": job.y, "rows": torch.cat(job.plan), "sizes": sizes,
            "losses": torch.empty(len(sizes)), "scratch": self.memory(capacity(job)),
            **job.logits()._asdict(),
        }  # fmt: skip
        if job.augment is not None:
            draw = generator(*job.key, "augment")
            given["looks"] = job.augment.looks(map(len, job.plan), draw)
            given["colours"] = torch.cat([job.augment.mean.flatten(), job.augment.std.flatten()])
        held = {name: each.contiguous() for name, each in given.items() if each is not None}
        numbers = int(step.nesterov), step.lr, pull, step.weight_decay, step.momentum
        self.run(held, numbers, job)
        if not (held["losses"].isfinite().all() and packed.sum().isfinite()):
            return None  # sums are many times as fast, and one that overflows is as good a reason
        self.layout.unpack(packed, weights.params)
        weights.buffers.copy_(buffers)
        return held["losses"]

    def answers(self, weights: Weights, x: Tensor) -> Tensor | None:
        """The logits of these examples. None where BatchNorm or dropout lie between layers, which are another
        thing in evaluation, or where something is not a number any more."""
        plain = x.dtype == torch.float32 and x.is_contiguous() and len(x) > 0
        if not (plain and self.layout.chain.is_plain):
            return None
        room = getattr(self.own, "capacity", ROOM)
        if self.once + self.each * room > MOST:
            return None
        rows = torch.arange(len(x))
        held = {
            "weights": self.layout.pack(weights.params), "x": x, "rows": rows,
            "sizes": torch.tensor([len(batch) for batch in rows.split(room)]), "scratch": self.memory(room),
            "answers": torch.empty(len(x), self.layout.chain.layers[-1].shape[0]),
        }  # fmt: skip
        self.compute(held, len(held["sizes"]), room, *NO_STEP)
        return held["answers"] if held["answers"].isfinite().all() else None

    def compute(self, held: Mapping[str, Tensor], steps: int, room: int, *numbers: float) -> None:
        """The call itself."""
        pointers = [held[name].data_ptr() if name in held else None for name in ARRAYS]
        self.call(*pointers, steps, room, *numbers)

    def run(self, held: dict[str, Tensor], numbers: tuple[float, ...], job: LocalSteps) -> None:
        """The call, without the interpreter's lock; several, where dropout draws very many numbers."""
        draw, steps, samples = generator(*job.key, "dropout"), 0, 0
        few = GATHER // (self.drawn * job.local.batch) if self.drawn else len(job.plan)
        while steps < len(job.plan):
            batches = job.plan[steps : steps + max(1, few)]
            done = {"rates": steps, "losses": steps, "sizes": steps, "rows": samples, "looks": samples}
            here = {name: array[done.get(name, 0) :] for name, array in held.items()}
            here["keeps"] = self.keeps(batches, draw)
            self.compute(here, len(batches), capacity(job), *numbers)
            steps, samples = steps + len(batches), samples + sum(map(len, batches))

    def keeps(self, batches: Sequence[Tensor], draw: torch.Generator) -> Tensor:
        """What dropout keeps, batch by batch and layer by layer, drawn as the network's own layers do."""
        kept = [torch.zeros(0, dtype=torch.uint8)]
        for batch in batches:
            for layer in self.layout.layers:
                if layer.tail and layer.tail.drops:
                    shape = len(batch), layer.layer.shape[0], layer.result.height, layer.result.width
                    drawn = torch.empty(shape).bernoulli_(1 - layer.tail.drops, generator=draw)
                    kept.append(drawn.permute(0, 2, 3, 1).to(torch.uint8).flatten())
        return torch.cat([*kept, torch.zeros(LINE, dtype=torch.uint8)])  # vectors may reach over the end

    def memory(self, capacity: int) -> Tensor:
        """This worker's own, for batches of so many samples; zero where nobody has written."""
        if getattr(self.own, "capacity", 0) != capacity:
            self.own.capacity = capacity
            self.own.memory = torch.zeros(self.once + self.each * capacity)
        return self.own.memory


def capacity(job: LocalSteps) -> int:
    """For how many samples there is room: the same for all clients, so that memory is taken once."""
    return up(min(job.local.batch, LARGEST), SAMPLES)


def adam_rates(lr: float, steps: int) -> Tensor:
    """``[steps, 2]``: the learning rate and one over the scale of the deviation, corrected for the start."""
    number = torch.arange(1, 1 + steps, dtype=torch.float64)
    return torch.stack([lr / (1 - BETAS[0] ** number), (1 - BETAS[1] ** number).rsqrt()], 1).float()
