"""A cohort's updates as they came, without copies: rows of a matrix that is made only if a method needs it.

Most averagings ask for nothing but the rows' product with a vector of weights, and that needs no matrix.
It does not even need rows: after a few SGD steps a client's movement of a linear layer is
``-sum_s c_s D_s.T @ H_s``, a handful of errors and inputs, and the weighted sum of many clients is one matrix
product per layer. Anything else that a method does with :class:`Rows` first turns them into an ordinary
tensor, so methods need not know.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

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


class Block(NamedTuple):
    """Clients that started from the same parameters, and the samples of all their steps."""

    factors: list[Factor]  # of all layers: together they are the whole vector
    client: Tensor  # [n] whose sample it is
    much: Tensor  # [n] of its gradient is in that client's movement
    params: Tensor  # [P] where they started
    shrink: Tensor  # [K] what weight decay did to the start: the factor of params in the movement
    each: Callable[..., Any] = map  # how to do something for several blocks; an engine spreads it over cores

    @property
    def finite(self) -> Tensor:
        """[K]: whether all numbers of a client's movement surely are: none exceeds this sum of norms."""
        norm = torch.linalg.vector_norm
        each = torch.stack([norm(own.errors, dim=1) * (norm(own.inputs, dim=1) + 1) for own in self.factors])
        most = self.shrink.abs() * norm(self.params)
        return most.index_add(0, self.client, each.sum(0) * self.much.abs()).isfinite()

    def rows(self) -> "list[FactoredRow | None]":
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
        return [FactoredRow(self, client) if fine else None for client, fine in enumerate(finite.tolist())]

    def combine(self, weights: Tensor) -> Tensor:
        """``weights @ movements``, in one matrix product a layer."""
        out, counts = torch.empty_like(self.params), weights[self.client] * self.much
        for factor in self.factors:
            factor.write(out, counts)
        return self._shrunk(out, weights @ self.shrink)

    def movement(self, client: int) -> Tensor:
        """Of one of the clients."""
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


class FactoredRow(Lazy):
    """One client's movement. Its numbers are finite: :meth:`Block.rows` makes none of others."""

    def __init__(self, block: Block, client: int) -> None:
        self.block, self.client = block, client

    def tensor(self) -> Tensor:
        return self.block.movement(self.client)

    @property
    def shape(self) -> torch.Size:
        return self.block.params.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.block.params.dtype

    def numel(self) -> int:
        return len(self.block.params)


class Rows(Lazy):
    """A cohort's vectors, ``[S, P]``, as they came: copied into one matrix only if a method needs that."""

    def __init__(self, rows: Sequence[Tensor | FactoredRow]) -> None:
        self.rows = list(rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, Tensor) and key.dtype == torch.bool:
            return Rows([row for row, keep in zip(self.rows, key.tolist(), strict=True) if keep])
        return self.tensor()[key]

    def tensor(self) -> Tensor:
        return self._matrix

    @cached_property
    def _matrix(self) -> Tensor:
        return torch.stack([_dense(row) for row in self.rows])

    def combine(self, weights: Tensor) -> Tensor:
        """``weights @ self`` without a copy: row by row, and block by block."""
        blocks: dict[int, list[tuple[int, int]]] = {}
        alone: list[tuple[float, Tensor]] = []
        for position, row in enumerate(self.rows):
            if isinstance(row, FactoredRow):
                blocks.setdefault(id(row.block), []).append((position, row.client))
            else:
                alone.append((float(weights[position]), row))

        def part(pairs: list[tuple[int, int]]) -> Tensor:
            block = self.rows[pairs[0][0]].block  # type: ignore[union-attr]
            positions, clients = (torch.tensor(numbers) for numbers in zip(*pairs, strict=True))
            return block.combine(torch.zeros(len(block.shrink)).index_add_(0, clients, weights[positions]))

        parts: list[Tensor] = []
        if blocks:
            each = next(row.block.each for row in self.rows if isinstance(row, FactoredRow))
            parts = list(each(part, list(blocks.values())))
        total = parts[0] if parts else torch.zeros(self.rows[0].numel(), dtype=weights.dtype)
        for other in parts[1:]:
            total += other
        for weight, row in alone:
            total.add_(row, alpha=weight)
        return total


def is_finite(value: Any) -> bool:
    """Whether all numbers are. One pass: a sum is finite only if its terms are."""
    if isinstance(value, FactoredRow):
        return True
    return not value.numel() or bool(value.sum().isfinite())


def combine(weights: Tensor, rows: Any) -> Tensor:
    """``weights @ rows``."""
    return rows.combine(weights) if isinstance(rows, Rows) else weights @ rows


def _dense(value: Any) -> Any:
    if isinstance(value, Lazy):
        return value.tensor()
    return type(value)(_dense(item) for item in value) if isinstance(value, list | tuple) else value
