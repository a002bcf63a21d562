"""Every number that a user can set keeps to a scale: no method, partition, model or source escapes it."""

import types
from collections.abc import Iterator
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from fedcohort.core.faults import Faults
from fedcohort.core.method import METHODS, Method
from fedcohort.core.profile import Local, Privacy
from fedcohort.data import SplitPlan
from fedcohort.data.partition import PARTITIONS
from fedcohort.data.sources import SOURCES
from fedcohort.models import MODELS
from fedcohort.runs.experiment import Experiment
from fedcohort.runs.overrides import override
from fedcohort.runs.run import Evaluation
from fedcohort.testing import tiny_task
from fedcohort.util import memory_limit
from fedcohort.util.errors import LONGEST, UserError
from fedcohort.util.expression import parse
from fedcohort.util.settings import build

SECTIONS = (Local, Privacy, Faults, Evaluation, SplitPlan)
TINY: dict[str, Any] = {
    "method": "fedavg",
    "data": {"source": "synthetic", "samples": 60, "classes": 3},
    "partition": {"name": "iid", "clients": 3},
}


def kinds_of(hint: Any) -> Iterator[type]:
    """The kinds of number that an annotation admits."""
    if get_origin(hint) in (Annotated, Union, types.UnionType, tuple):
        for each in get_args(hint):
            yield from kinds_of(each)
    elif hint in (int, float):
        yield hint


def numbers() -> list[tuple[type, str, bool]]:
    """Every setting that is a number or a list of them."""
    named = [
        registry.get(name) for registry in (METHODS, PARTITIONS, MODELS, SOURCES) for name in registry.names()
    ]
    found = []
    for cls in (*SECTIONS, *named):
        for name, hint in get_type_hints(cls, include_extras=True).items():
            if name in cls.__dataclass_fields__ and set(kinds_of(hint)):
                found.append((cls, name, get_origin(hint) is tuple))
    return found


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**400, 1e308, 1e-300, float("inf"), float("nan")])
def test_no_setting_takes_a_number_beyond_every_scale(value: float) -> None:
    settings = numbers()
    assert len(settings) > 100
    for cls, name, several in settings:
        with pytest.raises(UserError, match=name):
            build(cls, {name: [value] if several else value}, cls.__name__)


@pytest.mark.parametrize(
    "method",
    [
        "fedlecc(xi=1)",
        "fedprox(mu=1e308)",
        "clust_psi_pfl(features=1000000000)",
        "fedcor(dimensions=1000000000)",
    ],
)
def test_methods_refuse_what_their_scale_does_not_know(method: str) -> None:
    with pytest.raises(UserError):
        Method.parse(method)


@pytest.mark.parametrize("method", ["fedsoft", "ifca", "fesem", "fedconcat"])
def test_more_groups_than_clients(method: str) -> None:
    task = tiny_task()
    asked = Method.parse(f"{method}(groups=1000000000)")
    with pytest.raises(UserError, match=f"{method}: 1000000000 groups are too many for 8 clients"):
        asked.check(task.profile(asked))
    few = Method.parse(f"{method}(groups=16)")
    few.check(task.profile(few))


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {"source": "synthetic", "samples": 2**40}},
        {"data": {"source": "synthetic", "features": 2**40}},
        {"model": {"name": "mlp", "widths": [2**31]}},
        {"model": {"name": "mlp", "widths": [2**53, 2**53]}},
    ],
)
def test_what_would_not_fit_is_never_asked_for(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limit, "machine_bytes", lambda: 10**10)
    with pytest.raises(UserError, match=r"this machine has 10 GB|as large as that"):
        Experiment.of({**TINY, **changes}).task(0)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300, "uniform+" * 3000 + "uniform", "fedprox(mu=" + "-" * 5000 + "1)", "a\0b",
        "fedprox(mu={[]:1})", "fedprox(mu=" + "9" * 5000 + ")", "[" * 5000,
    ],
)  # fmt: skip
def test_expressions_without_end(text: str) -> None:
    with pytest.raises(UserError, match="cannot read") as raised:
        parse(text)
    assert len(str(raised.value)) < LONGEST + 10


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 5000])
def test_overrides_without_end(text: str) -> None:
    table: dict[str, Any] = {"seeds": [0]}
    override(table, f"name={text}")
    assert table["name"] == text
    with pytest.raises(UserError, match="no position"):
        override(table, f"seeds.{text}=1")


def test_a_superscript_is_no_position() -> None:
    with pytest.raises(UserError, match="no position"):
        override({"seeds": [0, 1, 2, 3]}, "seeds.²=1")


def test_a_sentence_is_one_line_whatever_it_quotes() -> None:
    said = str(UserError("there is no\nfile \x1b[31m" + "x" * 5000 + ": check the path"))
    assert said.isprintable()
    assert len(said) < LONGEST + 10
    assert said.endswith(": check the path")


@pytest.mark.parametrize("content", ["seeds = [" + "9" * 5000 + "]", "a = " + "[" * 5000])
def test_experiment_files_without_end(tmp_path: Any, content: str) -> None:
    (tmp_path / "e.toml").write_text(content)
    with pytest.raises(UserError, match="is not valid TOML"):
        Experiment.read(tmp_path / "e.toml")


@pytest.mark.parametrize("label", ["a\nb", "\x1b[31mred", "=1+1", "x" * 200])
def test_a_label_is_a_name_that_can_be_printed(label: str) -> None:
    with pytest.raises(UserError, match=r"method\.0\.label: .* cannot be printed as a name"):
        Experiment.of({"method": [{"name": "fedavg", "label": label}]})
