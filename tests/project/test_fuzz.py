"""A slice of ``make fuzz``: the same cases, a few hundred of them; and the fuzzer finds what is planted."""

import contextlib
import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from fuzz import hunt as hunting
from fuzz import run as running
from fuzz.draw import Draw, smaller
from fuzz.guard import CANARY, Forbidden, Hang, watched

SLICE = {"toml": 100, "tables": 200, "files": 100, "models": 40, "run_dirs": 20, "papers": 20, "tunings": 10}
SLICE["messages"] = 10


def test_every_target_is_in_the_slice() -> None:
    assert SLICE.keys() == set(hunting.TARGETS)


@pytest.mark.deploy
@pytest.mark.parametrize("name", sorted(SLICE))
def test_hostile_input_ends_in_a_result_or_a_sentence(name: str, tmp_path: Path) -> None:
    catch = hunting.hunt(name, SLICE[name], seed=1, home=tmp_path / "case")
    assert not catch.findings, next(iter(catch.findings.values())).what
    assert sum(catch.words.values()) == SLICE[name]
    assert catch.words.keys() - {"refused"}  # not everything is


class Planted:
    """A target with holes."""

    SHARE, SECONDS = 1, 0.2

    def make(self, draw: Draw) -> dict[str, Any]:
        return {"number": draw.below(1000), "list": [draw.below(9) for _ in range(draw.below(9))]}

    def try_case(self, case: dict[str, Any], home: Path) -> str:
        if case["number"] > 900:
            raise ZeroDivisionError
        while case["number"] == 17:
            pass
        return "fine"


def test_a_failure_is_found_made_smaller_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hunting, "target", lambda name: Planted())
    catch = hunting.hunt("planted", 100, seed=0, home=tmp_path / "case")
    (finding,) = [each for each in catch.findings.values() if "ZeroDivisionError" in each.place]
    assert finding.case["list"] == []
    assert running.conclude(catch, catch.words, 1.0, {}, tmp_path / "out") == 1
    (file,) = (tmp_path / "out").glob("planted-*.txt")
    assert running.repeat(file) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_a_case_that_hangs_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hunting, "target", lambda name: Planted())
    word, finding = hunting.attempt("planted", {"number": 17}, tmp_path / "case")
    assert word == "failed"
    assert finding is not None
    assert Hang.__name__ in finding.place


@pytest.mark.parametrize(
    "harm",
    [
        lambda home: __import__("os").system("true"),
        lambda home: __import__("subprocess").run(["true"], check=False),
        lambda home: __import__(CANARY),
        lambda home: (home.parent / "escaped").write_text("x"),
        lambda home: (home / "a").rename(home.parent / "escaped"),
    ],
    ids=["system", "subprocess", "import", "write", "rename"],
)
def test_code_and_files_elsewhere_are_noticed_even_if_swallowed(harm: Any, tmp_path: Path) -> None:
    home = tmp_path / "case"
    home.mkdir()
    (home / "a").write_text("allowed")
    with pytest.raises(Forbidden):
        _swallow(harm, home)
    assert not (tmp_path / "escaped").exists()


def test_a_first_import_is_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "never_imported_before.py").write_text("")
    with watched(tmp_path / "case", 5.0):
        importlib.import_module("never_imported_before")
    assert not sys.dont_write_bytecode


def _swallow(harm: Any, home: Path) -> None:
    with watched(home, 5.0), contextlib.suppress(BaseException):
        harm(home)


def test_smaller_choices_still_fail() -> None:
    assert smaller([5, 0, 9, 7, 3], lambda choices: sum(choices) >= 9) in ([9], [0, 9], [9, 0])
