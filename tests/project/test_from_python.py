"""The page about Python shows what happens."""

import doctest
from pathlib import Path

from support import REPOSITORY


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where they write
    page = REPOSITORY / "docs/from-python.md"
    tried = doctest.testfile(str(page), module_relative=False)
    assert tried.attempted > 20
    assert tried.failed == 0
