"""A small language for loops over vectors: Python writes them down once, LLVM compiles them.

A kernel is a Python function that is run while the program is being *written*. What it does with Python
numbers happens then: a ``for`` loop is unrolled, an ``if`` chooses what is written. What it does with a
:class:`Value` happens later, each time the program runs. So shapes are constants to the compiler, and a list
of accumulators is a list of registers.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

from llvmlite import ir

INT, BYTE, BIT, REAL, POINTER = ir.IntType(64), ir.IntType(8), ir.IntType(1), ir.FloatType(), ir.PointerType()
BYTES = {REAL: 4, INT: 8, BYTE: 1}
Operand = Union["Value", int, float]


class Value:
    """A number, a truth value or a vector of them that the program will compute."""

    def __init__(self, code: "Code", made: Any) -> None:
        self.code, self.made = code, made

    @property
    def kind(self) -> Any:
        return self.made.type

    @property
    def is_real(self) -> bool:
        return getattr(self.kind, "element", self.kind) == REAL

    def like(self, other: Operand) -> Any:
        """``other`` in this value's type; a number stands for a vector of equal ones."""
        if not isinstance(other, Value):
            other = self.code.constant(other, getattr(self.kind, "element", self.kind))
        return other.spread(self.kind.count).made if self.is_vector and not other.is_vector else other.made

    @property
    def is_vector(self) -> bool:
        return isinstance(self.kind, ir.VectorType)

    def _do(self, name: str, other: Operand) -> "Value":
        operation = getattr(self.code.builder, f"f{name}" if self.is_real else name)
        return Value(self.code, operation(self.made, self.like(other)))

    def _compare(self, sign: str, other: Operand) -> "Value":
        build = self.code.builder
        return Value(
            self.code,
            (build.fcmp_ordered if self.is_real else build.icmp_signed)(sign, self.made, self.like(other)),
        )

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

    def equals(self, other: Operand) -> "Value":
        return self._compare("==", other)

    def differs(self, other: Operand) -> "Value":
        """Also where one is not a number."""
        build = self.code.builder
        if self.is_real:
            return Value(self.code, build.fcmp_unordered("!=", self.made, self.like(other)))
        return Value(self.code, build.icmp_signed("!=", self.made, self.like(other)))

    def exceeds(self, other: Operand) -> "Value":
        """Larger, or one of the two is not a number."""
        return Value(self.code, self.code.builder.fcmp_unordered(">", self.made, self.like(other)))

    def choose(self, yes: Operand, no: "Value") -> "Value":
        """``yes`` where this holds."""
        return Value(self.code, self.code.builder.select(self.made, no.like(yes), no.made))

    def spread(self, lanes: int) -> "Value":
        """A vector of this number."""
        build, kind = self.code.builder, ir.VectorType(self.kind, lanes)
        one = build.insert_element(ir.Constant(kind, ir.Undefined), self.made, ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return Value(self.code, build.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros))

    def pick(self, lanes: Sequence[int], other: "Value | None" = None) -> "Value":
        """These lanes, of this vector followed by another."""
        which = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return Value(self.code, self.code.builder.shuffle_vector(self.made, (other or self).made, which))

    def total(self) -> "Value":
        """The sum of a vector's lanes, in pairs."""
        values, lanes = self, self.kind.count
        while lanes > 1:
            lanes //= 2
            values = values.pick(range(lanes)) + values.pick(range(lanes, 2 * lanes))
        return values.lane(0)

    def lane(self, number: int) -> "Value":
        at = ir.Constant(ir.IntType(32), number)
        return Value(self.code, self.code.builder.extract_element(self.made, at))

    def is_odd(self) -> "Value":
        return Value(self.code, self.code.builder.trunc(self.made, BIT))

    def as_real(self) -> "Value":
        return Value(self.code, self.code.builder.sitofp(self.made, REAL))

    def as_int(self) -> "Value":
        return Value(self.code, self.code.builder.zext(self.made, INT))


class Array:
    """Numbers in memory."""

    def __init__(self, code: "Code", start: Any, of: Any = REAL) -> None:
        self.code, self.start, self.of = code, start, of

    def __add__(self, places: Operand) -> "Array":
        at = self.code.value(places).made
        return Array(self.code, self.code.builder.gep(self.start, [at], source_etype=self.of), self.of)

    def __getitem__(self, place: Operand) -> Value:
        return self._load((self + place).start, self.of)

    def vector(self, place: Operand) -> Value:
        return self._load((self + place).start, ir.VectorType(self.of, self.code.lanes))

    def _load(self, start: Any, kind: Any) -> Value:
        return Value(self.code, self.code.builder.load(start, align=BYTES[self.of], typ=kind))

    def __setitem__(self, place: Operand, value: Operand) -> None:
        """A number, or a vector from this place on."""
        made = (value if isinstance(value, Value) else self.code.constant(value, self.of)).made
        self.code.builder.store(made, (self + place).start, align=BYTES[self.of])

    @property
    def is_given(self) -> Value:
        empty = ir.Constant(POINTER, None)
        return Value(self.code, self.code.builder.icmp_unsigned("!=", self.start, empty))


class Register:
    """A value that changes as the program runs."""

    def __init__(self, code: "Code", first: Value) -> None:
        self.code, self.of = code, first.kind
        self.place = code.room(self.of, 1).start
        self.set(first)

    def get(self) -> Value:
        return Value(self.code, self.code.builder.load(self.place, typ=self.of))

    def set(self, value: Value) -> None:
        self.code.builder.store(value.made, self.place)

    def add(self, value: Operand) -> None:
        self.set(self.get() + value)

    def add_product(self, a: Value, b: Value) -> None:
        """Rounded once."""
        self.set(self.code.intrinsic("fma", a, b, self.get()))


class Code:
    """A function of the program while it is being written."""

    def __init__(self, module: ir.Module, name: str, takes: Sequence[Any], lanes: int, public: bool = False):
        self.module, self.lanes = module, lanes
        # AVX-512 has 32 registers, AVX2 has 16; the rest hold what is multiplied.
        self.registers = 24 if lanes == 16 else 12
        kinds = [POINTER if isinstance(kind, tuple) else kind for kind in takes]
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
        self.function.linkage = "external" if public else "internal"
        self.builder = ir.IRBuilder(self.function.append_basic_block())
        self.arguments: list[Any] = [
            Array(self, given, kind[0]) if isinstance(kind, tuple) else Value(self, given)
            for given, kind in zip(self.function.args, takes, strict=True)
        ]

    def __call__(self, caller: "Code", *arguments: "Array | Operand") -> None:
        """Writes a call of this function into another."""
        given = [each.start if isinstance(each, Array) else caller.value(each).made for each in arguments]
        caller.builder.call(self.function, given)

    def end(self) -> "Code":
        self.builder.ret_void()
        return self

    def constant(self, number: float, kind: Any) -> Value:
        return Value(self, ir.Constant(kind, float(number) if kind == REAL else int(number)))

    def value(self, number: Operand) -> Value:
        if isinstance(number, Value):
            return number
        return self.constant(number, REAL if isinstance(number, float) else INT)

    def zero(self) -> Value:
        """A vector of zeros."""
        return self.constant(0.0, REAL).spread(self.lanes)

    def lanes_below(self, count: Value) -> Value:
        """Whether a lane is one of the first ``count``."""
        numbers = ir.Constant(ir.VectorType(INT, self.lanes), list(range(self.lanes)))
        return Value(self, numbers) < count

    def register(self, first: Operand) -> Register:
        return Register(self, self.value(first))

    def room(self, of: Any, count: int) -> Array:
        """A few numbers of this function's own."""
        with self.builder.goto_entry_block():
            place = self.builder.alloca(of, count)
        place.type = POINTER  # what it points to is said by those who use it
        return Array(self, place, of)

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
        build, first, last = self.builder, self.value(start).made, self.value(end).made
        before = build.block
        head, body, after = (build.append_basic_block(name) for name in ("head", "body", "after"))
        build.branch(head)
        build.position_at_end(head)
        index = build.phi(INT)
        index.add_incoming(first, before)
        build.cbranch(build.icmp_signed("<", index, last), body, after)
        build.position_at_end(body)
        yield Value(self, index)
        index.add_incoming(build.add(index, ir.Constant(INT, step)), build.block)
        build.branch(head)
        build.position_at_end(after)

    @contextmanager
    def blocks(self, total: int, size: int) -> Iterator[Value]:
        """Starts of blocks that cover ``total``; the last may overlap the one before, so none is short."""
        with self.loop(-(-total // size)) as number:
            start = number * size
            yield start if total % size == 0 else (start > total - size).choose(total - size, start)

    def strips(self, total: int, size: int) -> Iterator[tuple[Value, int]]:
        """What is written in the body of this ``for`` is done for blocks of ``size``, and for the rest."""
        whole = total - total % size
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
