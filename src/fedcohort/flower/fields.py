"""The numbers of a message as the schema has them: written by its fields, and believed as far as they go."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedcohort.core.records import Memory
from fedcohort.core.schema import FACTS, Field, Fields
from fedcohort.flower.messages import NonsenseError, Payload


def write_fields(fields: Fields, told: Mapping[str, Mapping[str, Any]]) -> Payload:
    """A message with these fields and no others, from what is told, record by record; a fact that is None is
    withheld. ValueError where that is anything else: what nobody declared does not leave a client."""
    declared = {(field.record, field.name): field for field in fields}
    numbers = {(record, name): value for record, own in told.items() for name, value in own.items()}
    if odd := declared.keys() ^ numbers.keys():
        raise ValueError(f"not as the schema has it: {', '.join(name for _, name in sorted(odd))}")
    payload = Payload({}, {record: {} for record in told if record != FACTS})
    for (record, name), field in declared.items():
        value = numbers[record, name]
        if record == FACTS:
            payload.facts[name] = value
        else:
            payload.tensors[record][name] = _as_declared(value, field)
    return payload


def _as_declared(value: Tensor, field: Field) -> Tensor:
    if value.shape != field.shape:
        raise ValueError(f"{_sides(value.shape)} for {_sides(field.shape)}: {field}")
    return value.to(field.dtype)


def read_facts(payload: Payload, fields: Fields) -> dict[str, Any]:
    """The numbers that are told by themselves: one, or a list where there are more."""
    return {field.name: _fact(payload, field) for field in fields if field.record == FACTS}


def _fact(payload: Payload, field: Field) -> Any:
    value = payload.facts.get(field.name)
    numbers = value if field.shape else [value]
    if not isinstance(numbers, list) or len(numbers) != math.prod(field.shape):
        raise NonsenseError(f"not as many numbers as there must be: {field}")
    kinds = (int, float) if field.dtype.is_floating_point else (int,)
    if not all(type(number) in kinds and field.range.holds(number) for number in numbers):
        raise _impossible(field)
    return value


def read_record(payload: Payload, record: str, fields: Fields) -> Memory:
    """Tensors: these and no others."""
    memory, own = payload.tensors.get(record, {}), [field for field in fields if field.record == record]
    if memory.keys() != {field.name for field in own}:
        names = ", ".join(field.name for field in own) or "nothing"
        raise NonsenseError(f"its {record} does not hold {names}")
    for field in own:
        value = memory[field.name]
        if value.shape != field.shape or value.dtype != field.dtype:
            raise NonsenseError(f"the wrong shape, {_sides(value.shape)} for {_sides(field.shape)}: {field}")
        if not field.range.holds_all(value):
            raise _impossible(field)
    return memory


def _impossible(field: Field) -> NonsenseError:
    if math.isinf(field.range.low):
        return NonsenseError(f"not a number: {field}")
    kind = "" if field.dtype.is_floating_point else "whole "
    return NonsenseError(f"a {kind}number is not {field.range}: {field}")


def _sides(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"
