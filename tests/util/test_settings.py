"""Tables into dataclasses: types, ranges, and sentences that name the key and the cure."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from fedcohort.util.errors import UserError
from fedcohort.util.settings import above, at_least, between, build, checked, nearest, settings_of


@dataclass(frozen=True)
class Sample:
    rate: Annotated[float, above(0)]
    steps: Annotated[int, at_least(1)] | None = None
    share: Annotated[float, between(0, 1)] = 0.5
    kind: Literal["sgd", "adam"] = "sgd"
    flag: bool = False
    widths: tuple[Annotated[int, at_least(1)], ...] = (8, 8)
    table: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def test_builds_what_the_annotations_want():
    made = build(Sample, {"rate": 1, "steps": 3, "widths": [4, 2], "table": {"a": 1}}, "local")
    assert made == Sample(1.0, 3, widths=(4, 2), table={"a": 1})
    assert isinstance(made.rate, float)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rate": 0.1, "stepz": 3}, "local.stepz: unknown, did you mean 'steps'?"),
        ({"steps": 3}, "local.rate: missing, and it has no default"),
        ({"rate": "fast"}, "local.rate: 'fast' is not a number"),
        ({"rate": True}, "local.rate: True is not a number"),
        ({"rate": 0}, "local.rate: 0 must be above 0"),
        ({"rate": 1, "share": 1.5}, "local.share: 1.5 must be between 0 and 1"),
        ({"rate": 1, "kind": "sdg"}, "local.kind: 'sdg' is not 'sgd' or 'adam'"),
        ({"rate": 1, "flag": 1}, "local.flag: 1 is not true or false"),
        ({"rate": 1, "note": 5}, "local.note: 5 is not text"),
        ({"rate": 1, "steps": 0}, "local.steps: 0 is not a whole number at least 1 or nothing"),
        ({"rate": 1, "steps": 2.5}, "local.steps: 2.5 is not a whole number at least 1 or nothing"),
        ({"rate": 1, "widths": [3, 0]}, "local.widths: [3, 0] is not a list of whole numbers at least 1"),
        ({"rate": 1, "table": [1]}, "local.table: [1] is not a table"),
    ],
)
def test_mistakes_name_key_and_cure(table, sentence):
    with pytest.raises(UserError) as raised:
        build(Sample, table, "local")
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (tuple[int, ...], "a list of whole numbers"),
        (tuple[float, ...], "a list of numbers"),
        (tuple[str, ...], "a list of texts"),
        (tuple[dict[str, Any], ...], "a list of tables"),
        (tuple[int | str, ...], "a list of whole numbers or texts"),
        (tuple[tuple[float, ...], ...], "a list of lists of numbers"),
        (tuple[bool, ...], "a list of true or false"),
        (tuple[Literal["a", "b"], ...], "a list of 'a' or 'b'"),
    ],
)
def test_what_a_list_holds_is_told_of_several(hint, words):
    with pytest.raises(UserError) as raised:
        checked(3, hint, "key")
    assert str(raised.value) == f"key: 3 is not {words}"


def test_not_a_number_is_outside_every_range():
    with pytest.raises(UserError, match="must be above 0"):
        build(Sample, {"rate": float("nan")}, "local")


def test_a_whole_float_is_a_whole_number():
    assert build(Sample, {"rate": 1, "steps": 4.0}, "").steps == 4


def test_keys_without_a_path():
    with pytest.raises(UserError, match=r"^stepz: unknown"):
        build(Sample, {"stepz": 1}, "")


@pytest.mark.parametrize(
    ("value", "hint", "result"),
    [
        (3, int | float, 3),
        (0.5, int | float, 0.5),
        (None, int | None, None),
        ("a", Any, "a"),
        ([1, 2], tuple[float, ...], (1.0, 2.0)),
    ],
)
def test_unions_and_lists(value, hint, result):
    assert checked(value, hint, "x") == result


def test_a_whole_number_stays_one_in_a_union():
    assert isinstance(checked(3, int | float, "x"), int)


def test_nearest():
    assert nearest("fedporx", ["fedavg", "fedprox"]) == ", did you mean 'fedprox'?"
    assert nearest("zzz", ["b", "a"]) == "; known: a, b"
    assert nearest("zzz", []) == ""


def test_what_a_class_can_be_given():
    shown = {setting.name: setting for setting in settings_of(Sample)}
    assert list(shown) == ["rate", "steps", "share", "kind", "flag", "widths", "table", "note"]
    assert shown["rate"].required
    assert shown["rate"].range == "above 0"
    assert (shown["share"].type, shown["share"].default) == ("number", 0.5)
    assert shown["steps"].type == "whole number at least 1 or nothing"
    assert shown["table"].default == {}
