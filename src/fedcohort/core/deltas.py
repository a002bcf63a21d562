"""A cohort's updates as they came, without copies: rows of a matrix that is made only if a method needs it.

Most averagings ask for nothing but the rows' product with a vector of weights, and that needs no matrix.
It does not even need rows: after a few SGD steps a client's movement of a linear layer is
``-sum_s c_s D_s.T @ H_s``, a handful of errors and inputs, and the weighted sum of many clients is one matrix
product per layer. Nor do movements have to be on this machine: whoever holds them can sum them there.
Anything else that a method does with :class:`Rows` first turns them into an ordinary tensor, so methods need
not know.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor


class Factor(NamedTuple):
    """What one layer saw of a block's samples; the gradient of some is ``errors.T @ [inputs, 1]``."""

    errors: Tensor  # [n, outputs]
    inputs: Tensor  # [n, inputs]
    start: int  # of the layer's weight in the flat vector; its bias follows

    def write(self, out: Tensor, counts: Tensor) -> None:
        """The gradient, with each sample as often as it ``counts``, into its place in a flat vector."""
        outputs, width = self.errors.shape[1], self.inputs.shape[1]
        middle = self.start + outputs * width
        weight, bias = out[self.start : middle].view(outputs, width), out[middle : middle + outputs]
        torch.mm((self.errors * counts[:, None]).t(), self.inputs, out=weight)
        torch.mv(self.errors.t(), counts, out=bias)

    def of(self, samples: Tensor) -> "Factor":
        """Some of the samples."""
        return Factor(self.errors[samples], self.inputs[samples], self.start)


class Block(Protocol):
    """Some clients whose movements are not written out here, each known by its place among them."""

    @property
    def size(self) -> int:
        """How many clients these are."""

    @property
    def like(self) -> Tensor:
        """A vector of the shape and kind of a movement."""

    @property
    def each(self) -> Callable[..., Any]:
        """How to do something for several blocks; an engine spreads it over cores."""

    def combine(self, weights: Tensor) -> Tensor:
        """``weights @ movements``, with a weight for each of the clients."""

    def movements(self, places: Sequence[int]) -> Sequence[Tensor]:
        """Those of some of the clients, written out."""


class FactoredBlock(NamedTuple):
    """Clients that started from the same parameters, and the samples of all their steps."""

    factors: list[Factor]  # of all layers: together they are the whole vector
    client: Tensor  # [n] whose sample it is
    much: Tensor  # [n] of its gradient is in that client's movement
    params: Tensor  # [P] where they started
    shrink: Tensor  # [K] what weight decay did to the start: the factor of params in the movement
    each: Callable[..., Any] = map

    @property
    def size(self) -> int:
        return len(self.shrink)

    @property
    def like(self) -> Tensor:
        return self.params

    @property
    def finite(self) -> Tensor:
        """[K]: whether all numbers of a client's movement surely are: none exceeds this sum of norms."""
        norm = torch.linalg.vector_norm
        each = torch.stack([norm(own.errors, dim=1) * (norm(own.inputs, dim=1) + 1) for own in self.factors])
        most = self.shrink.abs() * norm(self.params)
        return most.index_add(0, self.client, each.sum(0) * self.much.abs()).isfinite()

    def rows(self) -> "list[BlockRow | None]":
        """One for each client; None for those whose numbers broke. Their samples are blanked: even times 0
        they would spoil the others' sum."""
        finite = self.finite
        if not finite.all():
            broken = ~finite[self.client]
            self.much[broken] = 0
            self.shrink[~finite] = 0
            for factor in self.factors:
                factor.errors[broken] = 0
                factor.inputs[broken] = 0
        return [BlockRow(self, client) if fine else None for client, fine in enumerate(finite.tolist())]

    def combine(self, weights: Tensor) -> Tensor:
        """In one matrix product a layer."""
        out, counts = torch.empty_like(self.params), weights[self.client] * self.much
        for factor in self.factors:
            factor.write(out, counts)
        return self._shrunk(out, weights @ self.shrink)

    def movements(self, places: Sequence[int]) -> list[Tensor]:
        return [self._movement(client) for client in places]

    def _movement(self, client: int) -> Tensor:
        out, own = torch.empty_like(self.params), (self.client == client).nonzero()[:, 0]
        for factor in self.factors:
            factor.of(own).write(out, self.much[own])
        return self._shrunk(out, self.shrink[client])

    def _shrunk(self, out: Tensor, shrink: Tensor) -> Tensor:
        return out.add_(self.params, alpha=float(shrink)) if shrink else out


class Lazy:
    """Becomes an ordinary tensor as soon as anybody does something with it that it cannot do itself."""

    def tensor(self) -> Tensor:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.tensor()[key]

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return function(*_dense(args), **{key: _dense(value) for key, value in (kwargs or {}).items()})


def _operator(name: str) -> Callable[..., Any]:
    return lambda self, *others: getattr(self.tensor(), name)(*others)


_ARITHMETIC = "add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg abs"
for _name in f"{_ARITHMETIC} lt le gt ge eq ne len iter".split():
    setattr(Lazy, f"__{_name}__", _operator(f"__{_name}__"))


class BlockRow(Lazy):
    """One client's movement. Its numbers are finite: blocks make none of others."""

    def __init__(self, block: Block, place: int) -> None:
        self.block, self.place = block, place

    def tensor(self) -> Tensor:
        return self.block.movements([self.place])[0]

    @property
    def shape(self) -> torch.Size:
        return self.block.like.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.block.like.dtype

    def numel(self) -> int:
        return self.block.like.numel()


class Rows(Lazy):
    """A cohort's vectors, ``[S, P]``, as they came: copied into one matrix only if a method needs that."""

    def __init__(self, rows: Sequence[Tensor | BlockRow]) -> None:
        self.rows = list(rows)
        self._matrix: Tensor | None = None  # no cached_property: its lock is one for all objects

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Tensor) and key.dtype == torch.bool:
            return Rows([row for row, keep in zip(self.rows, key.tolist(), strict=True) if keep])
        return self.tensor()[key]

    def tensor(self) -> Tensor:
        if self._matrix is None:
            self._matrix = self._written()
        return self._matrix

    def _written(self) -> Tensor:
        written: dict[int, Tensor] = {}
        for block, positions, places in self._blocks():
            written.update(zip(positions, block.movements(places), strict=True))
        return torch.stack([written.get(n, row) for n, row in enumerate(self.rows)])  # type: ignore[arg-type]

    def _blocks(self) -> list[tuple[Block, list[int], list[int]]]:
        """Every block with the positions of its rows here, and their places in the block."""
        found: dict[int, tuple[Block, list[int], list[int]]] = {}
        for position, row in enumerate(self.rows):
            if isinstance(row, BlockRow):
                _, positions, places = found.setdefault(id(row.block), (row.block, [], []))
                positions.append(position)
                places.append(row.place)
        return list(found.values())

    def combine(self, weights: Tensor) -> Tensor:
        """``weights @ self`` without a copy: row by row, and block by block."""

        def part(some: tuple[Block, list[int], list[int]]) -> Tensor:
            block, positions, places = some
            counts = torch.zeros(block.size).index_add_(0, torch.tensor(places), weights[positions])
            return block.combine(counts)

        blocks = self._blocks()
        parts: list[Tensor] = list(blocks[0][0].each(part, blocks)) if blocks else []
        alone = [(float(weights[n]), row) for n, row in enumerate(self.rows) if isinstance(row, Tensor)]
        total = parts[0] if parts else torch.zeros(self.rows[0].numel(), dtype=weights.dtype)
        for other in parts[1:]:
            total += other
        for weight, row in alone:
            total.add_(row, alpha=weight)
        return total


def is_finite(value: Any) -> bool:
    """Whether all numbers are. One pass: a sum is finite only if its terms are."""
    if isinstance(value, BlockRow):
        return True
    return not value.numel() or bool(value.sum().isfinite())


def combine(weights: Tensor, rows: Any) -> Tensor:
    """``weights @ rows``."""
    return rows.combine(weights) if isinstance(rows, Rows) else weights @ rows


def _dense(value: Any) -> Any:
    if isinstance(value, Lazy):
        return value.tensor()
    return type(value)(_dense(item) for item in value) if isinstance(value, list | tuple) else value
