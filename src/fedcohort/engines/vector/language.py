"""A small language for loops over vectors: Python writes them down once, LLVM compiles them.

A kernel is a Python function that runs while the program is being *written*. What it does with Python's own
numbers happens then: a ``for`` is unrolled, an ``if`` chooses what is written. What it does with a
:class:`Value` happens whenever the program runs. So every shape is a constant to the compiler, and a list of
sums is a list of registers.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from itertools import chain
from typing import Any, TypeVar, Union

from llvmlite import ir

INT, SHORT, BYTE, REAL, POINTER = *map(ir.IntType, (64, 32, 8)), ir.FloatType(), ir.PointerType()
BYTES = {INT: 8, SHORT: 4, BYTE: 1, REAL: 4}
Operand = Union["Value", int, float]
EIGHT = 8  # lanes that one instruction of x86's can put into any order; others move them one by one
REORDERS = platform.machine() in ("x86_64", "AMD64")


def most_sums(lanes: int) -> int:
    """How many vectors fit into registers: AVX-512 has 32 of them, AVX2 16, and what is multiplied needs some
    too."""
    return 24 if lanes == 16 else 12


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

    def __and__(self, other: "Value") -> "Value":
        return Value(self.code, self.code.builder.and_(self.made, other.made))

    def __lt__(self, other: Operand) -> "Value":
        return self._compare("<", other)

    def __gt__(self, other: Operand) -> "Value":
        return self._compare(">", other)

    def equals(self, other: Operand) -> "Value":
        return self._compare("==", other)

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
        kind = ir.VectorType(REAL, self.kind.count) if self.is_vector else REAL
        return Value(self.code, self.code.builder.sitofp(self.made, kind))

    def as_int(self, kind: Any = INT) -> "Value":
        """Of a smaller number that is not negative, or a truth value."""
        kind = ir.VectorType(kind, self.kind.count) if self.is_vector else kind
        return Value(self.code, self.code.builder.zext(self.made, kind))

    def as_short(self) -> "Value":
        return Value(self.code, self.code.builder.trunc(self.made, SHORT))

    def is_odd(self) -> "Value":
        truth = ir.IntType(1)
        truth = ir.VectorType(truth, self.kind.count) if self.is_vector else truth
        return Value(self.code, self.code.builder.trunc(self.made, truth))


class Array:
    """Numbers in memory."""

    def __init__(self, code: "Code", start: Any, of: Any = REAL) -> None:
        self.code, self.start, self.of = code, start, of

    def __add__(self, places: Operand) -> "Array":
        """The rest of it, from there on."""
        place = self.code.value(places).made
        return self.code.array(self.code.builder.gep(self.start, [place], source_etype=self.of), self.of)

    def __getitem__(self, place: Operand) -> Value:
        return self.load(place, self.of)

    def vector(self, place: Operand) -> Value:
        return self.load(place, ir.VectorType(self.of, self.code.lanes))

    def load(self, place: Operand, kind: Any) -> Value:
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
        self.registers = 32 if lanes == 16 else 16
        self.most = most_sums(lanes)
        self.block = 24 if lanes == 16 else 8  # sums of products of a few by a few, which need more
        self.function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), takes), name)
        self.builder = ir.IRBuilder(self.function.append_basic_block())

    @contextmanager
    def function_of(self, given: Sequence[Array | Value], name: str) -> Iterator[Iterator[Array | Value]]:
        """What is written inside is another function, which is called here with what is given; inside it is
        what this yields."""
        made = [each.start if isinstance(each, Array) else each.made for each in given]
        kind = ir.FunctionType(ir.VoidType(), [each.type for each in made])
        function = ir.Function(self.module, kind, self.module.get_unique_name(name))
        function.linkage = "internal"
        function.attributes.add("noinline")
        outside, self.builder = self.builder, ir.IRBuilder(function.append_basic_block())
        pairs = zip(given, function.args, strict=True)
        yield iter(
            [
                Array(self, arg, each.of) if isinstance(each, Array) else Value(self, arg)
                for each, arg in pairs
            ]
        )
        self.builder.ret_void()
        self.builder = outside
        self.builder.call(function, made)

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

    def ramp(self, step: int) -> Value:
        """A vector of 0, step, 2 step, ..."""
        numbers = [step * lane for lane in range(self.lanes)]
        return Value(self, ir.Constant(ir.VectorType(SHORT, self.lanes), numbers))

    def lanes_below(self, count: Value) -> Value:
        """Whether a lane is one of the first ``count``."""
        return self.ramp(1) < count.as_short()

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
        return self.outside(name, kind, *of)

    def append(self, count: Value, wanted: Value, *columns: tuple[Array, Value]) -> Value:
        """Into each array, from ``count`` on, those lanes of a vector that are wanted; what lies behind them
        may be overwritten. Gives where the next would go."""
        for start in range(0, self.lanes, EIGHT):
            few = range(start, start + EIGHT)
            bits = Value(self, self.builder.bitcast(wanted.pick(few).made, BYTE)).as_int()
            order = self.orders.load(bits * EIGHT, ir.VectorType(BYTE, EIGHT)).as_int(SHORT)
            for array, values in columns:
                array[count] = self.reordered(values.pick(few), order)
            count = count + self.outside("llvm.ctpop.i64", INT, bits)
        return count

    @cached_property
    def orders(self) -> Array:
        """For each choice of eight lanes all their numbers, the chosen ones first."""
        rows = (sorted(range(EIGHT), key=lambda lane: not bits >> lane & 1) for bits in range(1 << EIGHT))
        numbers = bytearray(chain.from_iterable(rows))
        table = ir.GlobalVariable(self.module, ir.ArrayType(BYTE, len(numbers)), "orders")
        table.global_constant, table.linkage = True, "internal"
        table.initializer = ir.Constant(table.value_type, numbers)
        table.type = POINTER
        return self.array(table, BYTE)

    def reordered(self, values: Value, order: Value) -> Value:
        """Eight lanes in another order."""
        if REORDERS:
            name = "permps" if values.of == REAL else "permd"
            return self.outside(f"llvm.x86.avx2.{name}", values.kind, values, order)
        made = values.made
        for lane in (ir.Constant(INT, lane) for lane in range(EIGHT)):
            number = self.builder.extract_element(values.made, self.builder.extract_element(order.made, lane))
            made = self.builder.insert_element(made, number, lane)
        return Value(self, made)

    def outside(self, name: str, gives: Any, *of: Value) -> Value:
        """What a function of LLVM's or of the processor's gives."""
        known = self.module.globals.get(name)
        function = known or ir.Function(self.module, ir.FunctionType(gives, [each.kind for each in of]), name)
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


Kernel = TypeVar("Kernel", bound=Callable[..., None])


def apart(kernel: Kernel) -> Kernel:
    """Writes a kernel, which takes the code and a layer first, as a function of its own: LLVM takes twice as
    long for one long function as for many short ones."""

    @wraps(kernel)
    def write(code: Code, layer: Any, *given: Any) -> None:
        arrays = [each for each in given if isinstance(each, Array | Value)]
        with code.function_of(arrays, kernel.__name__) as taken:
            kernel(code, layer, *(next(taken) if isinstance(each, Array | Value) else each for each in given))

    return write  # type: ignore[return-value]


def transposed(rows: Sequence[Value]) -> list[Value]:
    """As many vectors as each has lanes, with rows and columns exchanged: of single numbers, then of squares
    of 2, 4, ... on each side."""
    lanes, side, rows = len(rows), 1, list(rows)
    while side < lanes:
        left = [lane - lane % (2 * side) + lane % side for lane in range(lanes)]  # the left square's lane
        right = [lane // side % 2 * lanes for lane in range(lanes)]  # its lower half is the other vector's
        for upper in (row for row in range(lanes) if row // side % 2 == 0):
            pair = rows[upper], rows[upper + side]
            for part, shift in enumerate((0, side)):
                chosen = [lane + shift + other for lane, other in zip(left, right, strict=True)]
                rows[upper + part * side] = pair[0].pick(chosen, pair[1])
        side *= 2
    return rows
