"""The pages about Python and about advice show what happens."""

import doctest
from pathlib import Path

from support import REPOSITORY


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where they write
    page = REPOSITORY / "docs/from-python.md"
    tried = doctest.testfile(str(page), module_relative=False)
    assert tried.attempted > 20
    assert tried.failed == 0


def test_the_advice_of_its_page():
    tried = doctest.testfile(str(REPOSITORY / "docs/advice.md"), module_relative=False)
    assert (tried.attempted, tried.failed) == (4, 0)
