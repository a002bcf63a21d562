"""A neural network as a function of one vector.

Methods are algebra on vectors: an update is ``after - before``, a cohort is a matrix, aggregation is one
product. Parameters go through the method; buffers (BatchNorm statistics) are a second vector that never
does, because a momentum or a rescaled step could turn a running variance negative.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedcohort.util.errors import UserError
from fedcohort.util.keyed import key_seed

# Examples evaluated at a time; fewer where convolutions would make more of them than the cache holds.
MANY, FEWER = 1024, 64

# Layers draw their first weights from PyTorch's global generator: only one thread at a time may make any.
BUILDING = threading.RLock()


class Weights(NamedTuple):
    """Everything a model is: trainable parameters ``[P]`` and buffers ``[B]``."""

    params: Tensor
    buffers: Tensor

    @property
    def bytes(self) -> int:
        return sum(vector.numel() * vector.element_size() for vector in self)


class Flat:
    """Wraps the module that ``build`` makes; the module's own tensors are only a template."""

    def __init__(self, build: Callable[[], nn.Module], draws_globally: bool = False) -> None:
        self.build = build
        self.begins_alike = False  # whatever the seed: it was given with its first weights
        with BUILDING, torch.random.fork_rng(devices=[]):
            self.module = build()
        fixed = [torch.full((p.numel(),), not p.requires_grad) for p in self.module.parameters()]
        self.frozen = torch.cat(fixed) if any(part.any() for part in fixed) else None  # [P] stays as it is
        self.module.train().requires_grad_(True)  # all have a gradient, used or not
        self._params = _Layout([(name, p.shape) for name, p in self.module.named_parameters()])
        self._buffers = _Layout([(name, b.shape) for name, b in self.module.named_buffers()])
        named = (
            *self.module.named_parameters(remove_duplicate=False),
            *self.module.named_buffers(remove_duplicate=False),
        )
        self._tied = len(named) > len(self._params.names) + len(self._buffers.names)  # some have two names
        norms = (nn.modules.batchnorm._BatchNorm,)
        convolves = any(isinstance(m, nn.modules.conv._ConvNd) for m in self.module.modules())
        by_batch = any(isinstance(m, norms) and not m.track_running_stats for m in self.module.modules())
        self.together = FEWER if convolves and not by_batch else MANY
        self.num_params, self.num_buffers = self._params.total, self._buffers.total
        counters = [torch.full((b.numel(),), not b.is_floating_point()) for b in self.module.buffers()]
        self.counters = torch.cat(counters) if counters else torch.zeros(0, dtype=torch.bool)
        self._kinds = {name: b.dtype for name, b in self.module.named_buffers() if _is_constant(name, b)}
        self.needs_pairs = any(
            isinstance(m, norms) for m in self.module.modules()
        )  # no statistics from one sample
        self._unmeasured: dict[int, Tensor] = {}
        self._dropout = torch.Generator()
        self.is_random = _lend(self.module, self._dropout)
        self.draws_globally = draws_globally or any(_draws(m) for m in self.module.modules())
        self.is_random |= self.draws_globally
        leaves = [name for name, part in self.module.named_modules() if not list(part.children())]
        self.ends_with: str | None = leaves[-1]  # the layer whose output is the network's; None: no layer's

    def again(self) -> "Flat":
        """Another with a module of its own, since a module serves one user at a time."""
        other = Flat(self.build, self.draws_globally)
        other.begins_alike, other.ends_with = self.begins_alike, self.ends_with
        return other

    def init(self, seed: int) -> Weights:
        """Fresh weights that depend on the seed alone."""
        with BUILDING, torch.random.fork_rng(devices=[]):
            _seed_draws(key_seed(seed, "init"))
            module = self.build()
        return Weights(_concat(module.parameters()), _concat(module.buffers()))

    def unmeasured(self, seed: int) -> Tensor:
        """The buffers of :meth:`init`: statistics of a network that has seen nothing. Made once a seed."""
        if seed not in self._unmeasured:
            self._unmeasured[seed] = self.init(seed).buffers
        return self._unmeasured[seed]

    def inits(self, seed: int, count: int) -> list[Weights]:
        """Independent fresh weights; the first are those of :meth:`init`."""
        if self.begins_alike and count > 1:
            raise UserError(
                f"model: {count} models with different first weights are wanted, and a module has one set of "
                "them: give its class, or a function that makes it"
            )
        return [self.init(key_seed(seed, "model", number) if number else seed) for number in range(count)]

    def logits(self, weights: Weights, x: Tensor, training: bool = False) -> Tensor:
        """The network's output. In training, BatchNorm updates ``weights.buffers`` in place."""
        if self.module.training != training:  # with all its layers: nobody else changes them
            self.module.train(training)
        tensors = {**self._params.view(weights.params), **self._statistics(weights.buffers)}
        return functional_call(self.module, tensors, (x,), tie_weights=self._tied)

    def answers(self, weights: Weights, x: Tensor) -> Tensor:
        """Its outputs in evaluation for one example or more, as many at a time as are computed fastest."""
        return torch.cat([self.logits(weights, part) for part in x.split(self.together)])

    def _statistics(self, vector: Tensor) -> dict[str, Tensor]:
        """The buffers inside the vector; position numbers, masks and the like as what they are."""
        views = self._buffers.apart(vector)
        return {name: view.to(self._kinds.get(name, view.dtype)) for name, view in views.items()}

    @contextmanager
    def random_by(self, seed: int) -> Iterator[None]:
        """Inside, what layers draw depends on the seed alone, and disturbs nobody else's draws."""
        self._dropout.manual_seed(seed)
        with torch.random.fork_rng(devices=[], enabled=self.draws_globally):
            if self.draws_globally:
                _seed_draws(seed)
            yield

    def bind(self, weights: Weights) -> nn.Module:
        """The template itself, in training mode, with views of ``weights`` as its tensors."""
        for tensor, view in zip(
            self.module.parameters(), self._params.view(weights.params).values(), strict=True
        ):
            tensor.data = view
        for name, view in self._statistics(weights.buffers).items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, view)
        return self.module.train()

    def module_with(self, weights: Weights) -> nn.Module:
        """An ordinary module holding a copy of these weights, for export and further use."""
        with BUILDING, torch.random.fork_rng(devices=[]):
            module = self.build()
        state = {**self._params.view(weights.params), **self._buffers.view(weights.buffers)}
        module.load_state_dict(state, strict=False)
        return module.eval()

    def within(self, layers: Sequence[str]) -> Tensor:
        """[P]: which parameters belong to the layers of these names, or are the tensors of these names."""
        names = self._params.names
        parts = [f"{layer}." if layer else "" for layer in layers]  # the network itself has no name
        unknown = [part[:-1] for part in parts if not any(f"{name}.".startswith(part) for name in names)]
        if unknown:
            raise UserError(f"the model has no layer '{unknown[0]}'; it has {', '.join(names)}")
        chosen = [any(f"{name}.".startswith(part) for part in parts) for name in names]
        return torch.tensor(chosen).repeat_interleave(torch.tensor(self._params.sizes))

    def combine_buffers(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Convex mean of ``rows [S, B]`` by ``shares [S]`` (which sum to one); counters take the largest."""
        mean = shares.to(rows.dtype) @ rows
        return torch.where(self.counters, rows.amax(0), mean) if self.num_buffers else mean


class OwnDropout(nn.Dropout):
    """nn.Dropout with a generator of its own: PyTorch's draws from one that all threads share."""

    generator: torch.Generator

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        # The shape alone decides what is drawn, not how the layer before laid its output into memory.
        keep = (
            torch.empty(x.shape, dtype=x.dtype).bernoulli_(1 - self.p, generator=self.generator).to(x.device)
        )
        return x * (keep.div_(1 - self.p) if self.p < 1 else keep)


def _seed_draws(seed: int) -> None:
    """Of PyTorch's global generators. Those of devices that this machine lacks are left alone: PyTorch would
    write down the whole stack for each of them, which takes longer than to make a small network."""
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


def _lend(module: nn.Module, generator: torch.Generator) -> bool:
    """Every plain dropout layer inside ``module`` draws from ``generator`` from now on; is there any?"""
    layers = [child for child in module.modules() if type(child) in (nn.Dropout, OwnDropout)]
    for layer in layers:
        layer.__class__ = OwnDropout
        layer.generator = generator  # type: ignore[assignment]
    return bool(layers)


def _draws(module: nn.Module) -> bool:
    """Other kinds of dropout layers, and attention or recurrent layers with dropout inside."""
    other = isinstance(module, nn.modules.dropout._DropoutNd) and type(module) is not OwnDropout
    inside = getattr(module, "dropout", 0.0)  # a layer of that name is looked at by itself
    return other or (not isinstance(inside, nn.Module) and bool(inside))


def _is_constant(name: str, buffer: Tensor) -> bool:
    """Whole numbers and truth values, other than BatchNorm's count of batches, which training changes."""
    return not buffer.is_floating_point() and name.rpartition(".")[2] != "num_batches_tracked"


class _Layout:
    """Where each named tensor lies in the vector."""

    def __init__(self, shapes: list[tuple[str, torch.Size]]) -> None:
        self.names = [name for name, _ in shapes]
        self.shapes = [shape for _, shape in shapes]
        self.sizes = [shape.numel() for shape in self.shapes]
        self.total = sum(self.sizes)

    def view(self, vector: Tensor) -> dict[str, Tensor]:
        pieces = vector.split(self.sizes)
        return {
            name: piece.view(shape)
            for name, piece, shape in zip(self.names, pieces, self.shapes, strict=True)
        }

    def apart(self, vector: Tensor) -> dict[str, Tensor]:
        """The same views, but autograd does not know that they share memory: it would take one BatchNorm
        layer's new statistics for a change of every other's."""
        return {name: view.data for name, view in self.view(vector).items()}


def _concat(tensors: object) -> Tensor:
    flat = [t.detach().reshape(-1).to(torch.float32) for t in tensors]  # type: ignore[attr-defined]
    return torch.cat(flat) if flat else torch.zeros(0)
