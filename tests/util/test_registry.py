"""Things found by the name of their file."""

import sys
from pathlib import Path

import pytest

from fedcohort.core.method import METHODS
from fedcohort.util.errors import UserError
from fedcohort.util.registry import Registry

NAMES = iter(f"registry_sample_{number}" for number in range(100))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty importable package with a name of its own."""
    folder = tmp_path / next(NAMES)
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_every_file_is_a_method_and_nothing_else():
    folder = Path(sys.modules["fedcohort"].__file__ or "").parent / "methods"
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    assert files <= set(METHODS.names())
    for name in files:
        assert METHODS.get(name).name == name


def test_names_come_from_files_and_nothing_is_imported(package):
    (package / "one.py").write_text("raise RuntimeError('imported')")
    (package / "_helper.py").write_text("")
    assert Registry("thing", package.name, "none").names() == ["one"]


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match=r"unknown method 'fedproxx', did you mean 'fedprox'\?"):
        METHODS.get("fedproxx")


def test_a_file_that_registers_nothing(package):
    (package / "empty.py").write_text("")
    with pytest.raises(UserError, match="registers no thing called 'empty': decorate"):
        Registry("thing", package.name, "none").get("empty")


def test_two_packages_may_not_claim_one_name():
    registry: Registry[object] = Registry("thing", "fedcohort.methods", "none")
    one = registry.register(type("One", (), {"__module__": "here.same"}))
    assert registry.get("same") is one
    with pytest.raises(UserError, match=r"two things are called 'same': here\.same and there\.same"):
        registry.register(type("Two", (), {"__module__": "there.same"}))
    again = registry.register(type("One", (), {"__module__": "here.same"}))  # a module that is imported anew
    assert registry.get("same") is again


def test_another_package_adds_its_own(package, monkeypatch):
    (package / "theirs.py").write_text(
        "from fedcohort.api import Selector, register\n@register\nclass Theirs(Selector):\n    pass\n"
    )
    monkeypatch.setattr(METHODS, "_others", lambda: {"theirs": f"{package.name}.theirs"})
    monkeypatch.setattr(METHODS, "_classes", dict(METHODS._classes))
    assert "theirs" in METHODS.names()
    assert METHODS.get("theirs").name == "theirs"


def test_another_package_that_cannot_be_imported(monkeypatch):
    monkeypatch.setattr(METHODS, "_others", lambda: {"broken": "no_such_package.broken"})
    with pytest.raises(UserError, match="'broken' of another package cannot be imported"):
        METHODS.get("broken")
