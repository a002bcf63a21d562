"""A small language for loops over vectors: Python writes them down once, LLVM compiles them.

A kernel is a Python function that runs while the program is being *written*. What it does with Python's own
numbers happens then: a ``for`` is unrolled, an ``if`` chooses what is written. What it does with a
:class:`Value` happens whenever the program runs. So every shape is a constant to the compiler, and a list of
sums is a list of registers.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

from llvmlite import ir

INT, BYTE, REAL, POINTER = ir.IntType(64), ir.IntType(8), ir.FloatType(), ir.PointerType()
BYTES = {INT: 8, BYTE: 1, REAL: 4}
Operand = Union["Value", int, float]


class Value:
    """A number, a truth value or a vector of them that the program will compute."""

    def __init__(self, code: "Code", made: Any) -> None:
        self.code, self.made, self.kind = code, made, made.type
        self.is_vector = isinstance(self.kind, ir.VectorType)
        self.of = self.kind.element if self.is_vector else self.kind

    def like(self, other: Operand) -> Any:
        """``other`` in this value's type; one number stands for a vector of equal ones."""
        value = other if isinstance(other, Value) else self.code.constant(other, self.of)
        return (value.spread(self.kind.count) if self.is_vector and not value.is_vector else value).made

    def _do(self, name: str, other: Operand) -> "Value":
        operation = getattr(self.code.builder, f"f{name}" if self.of == REAL else name)
        return Value(self.code, operation(self.made, self.like(other)))

    def _compare(self, sign: str, other: Operand, ordered: bool = True) -> "Value":
        builder, other = self.code.builder, self.like(other)
        if self.of != REAL:
            return Value(self.code, builder.icmp_signed(sign, self.made, other))
        compare = builder.fcmp_ordered if ordered else builder.fcmp_unordered
        return Value(self.code, compare(sign, self.made, other))

    def __add__(self, other: Operand) -> "Value":
        return self._do("add", other)

    __radd__ = __add__

    def __sub__(self, other: Operand) -> "Value":
        return self._do("sub", other)

    def __mul__(self, other: Operand) -> "Value":
        return self._do("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Operand) -> "Value":
        return self._do("div", other)

    def __or__(self, other: "Value") -> "Value":
        return Value(self.code, self.code.builder.or_(self.made, other.made))

    def __lt__(self, other: Operand) -> "Value":
        return self._compare("<", other)

    def __gt__(self, other: Operand) -> "Value":
        return self._compare(">", other)

    def differs(self, other: Operand) -> "Value":
        """Also where one is not a number."""
        return self._compare("!=", other, ordered=False)

    def exceeds(self, other: Operand) -> "Value":
        """Is larger, or one of the two is not a number."""
        return self._compare(">", other, ordered=False)

    def choose(self, yes: Operand, no: "Value") -> "Value":
        """``yes`` where this holds."""
        return Value(self.code, self.code.builder.select(self.made, no.like(yes), no.made))

    def spread(self, lanes: int) -> "Value":
        """A vector of this number."""
        nothing = ir.Constant(ir.VectorType(self.kind, lanes), ir.Undefined)
        first = self.code.builder.insert_element(nothing, self.made, ir.Constant(INT, 0))
        return Value(self.code, first).pick([0] * lanes)

    def pick(self, lanes: Iterable[int], other: "Value | None" = None) -> "Value":
        """These lanes, of this vector followed by another."""
        chosen = list(lanes)
        which = ir.Constant(ir.VectorType(ir.IntType(32), len(chosen)), chosen)
        return Value(self.code, self.code.builder.shuffle_vector(self.made, (other or self).made, which))

    def total(self) -> "Value":
        """The sum of a vector's lanes, in pairs."""
        values, lanes = self, self.kind.count
        while lanes > 1:
            lanes //= 2
            values = values.pick(range(lanes)) + values.pick(range(lanes, 2 * lanes))
        return Value(self.code, self.code.builder.extract_element(values.made, ir.Constant(INT, 0)))

    def as_real(self) -> "Value":
        return Value(self.code, self.code.builder.sitofp(self.made, REAL))

    def as_int(self) -> "Value":
        """Of a byte or a truth value."""
        return Value(self.code, self.code.builder.zext(self.made, INT))

    def is_odd(self) -> "Value":
        return Value(self.code, self.code.builder.trunc(self.made, ir.IntType(1)))


class Array:
    """Numbers in memory."""

    def __init__(self, code: "Code", start: Any, of: Any = REAL) -> None:
        self.code, self.start, self.of = code, start, of

    def __add__(self, places: Operand) -> "Array":
        """The rest of it, from there on."""
        place = self.code.value(places).made
        return self.code.array(self.code.builder.gep(self.start, [place], source_etype=self.of), self.of)

    def __getitem__(self, place: Operand) -> Value:
        return self._load(place, self.of)

    def vector(self, place: Operand) -> Value:
        return self._load(place, ir.VectorType(self.of, self.code.lanes))

    def _load(self, place: Operand, kind: Any) -> Value:
        start = (self + place).start
        return Value(self.code, self.code.builder.load(start, align=BYTES[self.of], typ=kind))

    def __setitem__(self, place: Operand, value: Operand) -> None:
        """Stores a number, or a vector from this place on."""
        value = value if isinstance(value, Value) else self.code.constant(value, self.of)
        self.code.builder.store(value.made, (self + place).start, align=BYTES[self.of])

    def holding(self, of: Any) -> "Array":
        """The same memory for other numbers."""
        return self.code.array(self.start, of)

    @property
    def is_given(self) -> Value:
        nowhere = ir.Constant(POINTER, None)
        return Value(self.code, self.code.builder.icmp_unsigned("!=", self.start, nowhere))


class Register:
    """A value that changes as the program runs."""

    def __init__(self, code: "Code", first: Value) -> None:
        self.code, self.kind, self.place = code, first.kind, code.room(first.kind, 1).start
        self.set(first)

    def get(self) -> Value:
        return Value(self.code, self.code.builder.load(self.place, typ=self.kind))

    def set(self, value: Value) -> None:
        self.code.builder.store(value.made, self.place)

    def add(self, value: Operand) -> None:
        self.set(self.get() + value)

    def add_product(self, a: Value, b: Value) -> None:
        """Rounded once."""
        self.set(self.code.intrinsic("fma", a, b, self.get()))


class Code:
    """A function while it is being written; vectors in it have ``lanes`` numbers."""

    def __init__(self, name: str, takes: Sequence[Any], lanes: int) -> None:
        self.module, self.lanes = ir.Module(name), lanes
        # For sums: AVX-512 has 32 registers, AVX2 16, and what is multiplied needs some too.
        self.registers = 24 if lanes == 16 else 12
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), takes), name)
        self.builder = ir.IRBuilder(self.function.append_basic_block())

    def array(self, start: Any, of: Any = REAL) -> Array:
        return Array(self, start, of)

    def constant(self, number: float, kind: Any) -> Value:
        return Value(self, ir.Constant(kind, float(number) if kind == REAL else int(number)))

    def value(self, number: Operand) -> Value:
        if isinstance(number, Value):
            return number
        return self.constant(number, REAL if isinstance(number, float) else INT)

    def zeros(self, of: Any = REAL) -> Value:
        """A vector of them."""
        return Value(self, ir.Constant(ir.VectorType(of, self.lanes), None))

    def lanes_below(self, count: Value) -> Value:
        """Whether a lane is one of the first ``count``."""
        numbers = ir.Constant(ir.VectorType(INT, self.lanes), list(range(self.lanes)))
        return Value(self, numbers) < count

    def register(self, first: Operand) -> Register:
        return Register(self, self.value(first))

    def sums(self, count: int) -> list[Register]:
        """Vectors that begin at zero."""
        return [self.register(self.zeros()) for _ in range(count)]

    def room(self, of: Any, count: int) -> Array:
        """A few numbers of the function's own."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(of, count)
        place.type = POINTER  # to anything: who uses it says what
        return self.array(place, of)

    def intrinsic(self, name: str, *of: Value) -> Value:
        """One of LLVM's own functions, such as a square root."""
        kind = of[0].kind
        name = f"llvm.{name}.v{kind.count}f32" if of[0].is_vector else f"llvm.{name}.f32"
        known = self.module.globals.get(name)
        function = known or ir.Function(self.module, ir.FunctionType(kind, [kind] * len(of)), name)
        return Value(self, self.builder.call(function, [each.made for each in of]))

    @contextmanager
    def loop(self, end: Operand, step: int = 1, start: Operand = 0) -> Iterator[Value]:
        """What is written inside is done for start, start + step, ... below end."""
        builder, first, last = self.builder, self.value(start).made, self.value(end).made
        before = builder.block
        head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        index = builder.phi(INT)
        index.add_incoming(first, before)
        builder.cbranch(builder.icmp_signed("<", index, last), body, after)
        builder.position_at_end(body)
        yield Value(self, index)
        index.add_incoming(builder.add(index, ir.Constant(INT, step)), builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    @contextmanager
    def blocks(self, total: int, size: int) -> Iterator[Value]:
        """Starts of blocks that cover ``total``; the last may overlap the one before, so none is short."""
        with self.loop(-(-total // size)) as number:
            start = number * size
            yield start if total % size == 0 else (start > total - size).choose(total - size, start)

    def strips(self, total: int, size: int) -> Iterator[tuple[Value, int]]:
        """The body of this ``for`` is written for blocks of ``size``, and once more for what is left."""
        whole = total - total % size
        if whole:
            with self.loop(whole, size) as start:
                yield start, size
        if whole < total:
            yield self.value(whole), total - whole

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        with self.builder.if_then(condition.made):
            yield

    @contextmanager
    def either(self, condition: Value) -> Iterator[tuple[Any, Any]]:
        with self.builder.if_else(condition.made) as (yes, no):
            yield yes, no
