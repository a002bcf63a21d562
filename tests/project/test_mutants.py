"""The list of planted mistakes fits the source, and who plants them tells the noticed from the others."""

from pathlib import Path

import pytest

from mutants.run import PROCESSES, ROOT, Mutant, attempt, hunt, load, page

MUTANTS = load()
SOURCES = ROOT / "src" / "fedcohort"


def test_every_entry_fits_the_source() -> None:
    for mutant in MUTANTS:
        text = (SOURCES / mutant.file).read_text(encoding="utf-8")
        assert text.count(mutant.find) == 1, f"{mutant.file}: {mutant.what}"
        assert mutant.find != mutant.replace, mutant.what
        compile(text.replace(mutant.find, mutant.replace), mutant.file, "exec")


def test_every_entry_names_tests_that_exist() -> None:
    for mutant in MUTANTS:
        assert mutant.tests, mutant.what
        for target in mutant.tests:
            file, _, name = target.partition("::")
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert f"def {name.partition('[')[0]}(" in text if name else "def test_" in text, target


def test_no_mistake_is_listed_twice() -> None:
    assert len({(mutant.file, mutant.find, mutant.replace) for mutant in MUTANTS}) == len(MUTANTS) >= 160
    assert len({mutant.what for mutant in MUTANTS}) == len(MUTANTS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A library of one function, and a test of half of it, which needs nothing else."""
    PROCESSES.set_forkserver_preload(["pytest"])
    for name, text in {
        "src/fedcohort/__init__.py": '"""A tiny library."""\n',
        "src/fedcohort/sums.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sums.py": "from fedcohort.sums import add\ndef test_add():\n    assert add(2, 2) == 4\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def planted(replace: str, equivalent: str = "") -> Mutant:
    return Mutant("sums", f"a {replace} b", "sums.py", "a + b", replace, ("test_sums.py",), equivalent)


def test_the_noticed_are_told_from_the_others(tree: Path) -> None:
    """2 * 2 is 4 too; 2 - 2 is not, and what never ends is noticed by the clock."""
    endless = "a + b if any(iter(int, 1)) else 0"
    mutants = [planted("a * b"), planted("a - b"), planted("b + a", "so is addition"), planted("a", "no")]
    found = list(hunt(mutants, 1, tree))
    assert [outcome for _, outcome in found] == ["survived", "killed", "equivalent", "not equivalent"]
    assert attempt(planted(endless), tree / "src", tree, 1.0) == "killed"
    assert (tree / "src/fedcohort/sums.py").read_text() == "def add(a, b):\n    return a + b\n"
    told = page(found, "words")
    assert "| sums | 1 | 1 | 1 |" in told
    assert "- `sums.py`: a a * b b: no test yet." in told


def test_tests_that_fail_anyway_notice_nothing(tree: Path) -> None:
    (tree / "tests/test_sums.py").write_text("def test_add():\n    assert False\n")
    with pytest.raises(SystemExit, match=r"without any mistake: test_sums\.py"):
        list(hunt([planted("a - b")], 1, tree))


def test_tests_of_another_library_notice_nothing(tree: Path) -> None:
    (tree / "tests/test_sums.py").write_text("def test_add():\n    assert True\n")
    with pytest.raises(SystemExit, match="nothing can be imported"):
        list(hunt([planted("a - b")], 1, tree))
