"""The rule of who may import whom holds, and a violation of any kind would be found."""

from pathlib import Path

import house
import pytest

from support import REPOSITORY


def test_every_import_keeps_the_rule():
    assert list(house.violations(REPOSITORY / "src/fedcohort")) == []


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("util/a.py", "from fedcohort.core.task import Task"),
        ("util/a.py", "import fedcohort.core.task"),
        ("core/round/a.py", "def later():\n    from fedcohort.engines import pool"),
        (
            "stats/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fedcohort.models import flat",
        ),
        ("methods/a.py", "from fedcohort import runs"),
        ("report/a.py", "from fedcohort.cli.tables import results"),
        ("engines/a.py", "import fedcohort"),
        ("util/a.py", "from ..core import task"),
        ("cli/a.py", "from . import b"),
        ("data/a.py", "from fedcohort.unheard_of import anything"),
        ("a.py", "x = 1"),
        ("shed/a.py", "x = 1"),
    ],
)
def test_a_planted_violation_is_found(where: str, text: str, tmp_path: Path):
    source = tmp_path / "fedcohort"
    for room in house.FLOOR:
        (source / room).mkdir(parents=True)
    assert list(house.violations(source)) == []
    (source / where).parent.mkdir(parents=True, exist_ok=True)
    (source / where).write_text(text)
    (found,) = house.violations(source)
    assert where.split("/")[0].removesuffix(".py") in found


def test_what_is_below_may_be_imported(tmp_path: Path):
    source = tmp_path / "fedcohort"
    (source / "core").mkdir(parents=True)
    (source / "core/a.py").write_text(
        "from fedcohort.core import b\nfrom fedcohort.util import errors\nimport torch"
    )
    assert list(house.violations(source)) == []


def test_tests_stand_where_their_subjects_do():
    """Beside the rooms: whole deployments, the project's own documents and scripts, and what tests share."""
    tests, source = REPOSITORY / "tests", REPOSITORY / "src/fedcohort"
    folders = {path.parent.relative_to(tests) for path in tests.glob("*/**/*.py")}
    assert {str(folder) for folder in folders if not (source / folder).is_dir()} == {
        "deploy",
        "project",
        "support",
    }
    assert [path.name for path in tests.glob("*.py")] == ["conftest.py"]


def imported_tests(path: Path) -> list[str]:
    """What a file imports of tests."""
    names = [module for _, module in house.imported(path)]
    return [name for name in names if any(word.startswith("test_") for word in name.split("."))]


def test_no_test_is_imported_by_another():
    assert [path for path in (REPOSITORY / "tests").rglob("*.py") if imported_tests(path)] == []


@pytest.mark.parametrize(
    "text", ["import test_x", "from test_x import y", "from core import test_x", "from .test_x import y"]
)
def test_a_planted_import_of_a_test_is_found(text: str, tmp_path: Path):
    (tmp_path / "test_y.py").write_text(text)
    assert imported_tests(tmp_path / "test_y.py")
