"""Every method's file says what its page needs, and the pages are what scripts/update_docs.py would write."""

import re
import runpy
from pathlib import Path

import pytest

from fedcohort.cli.tables import method_page, results
from fedcohort.core.method import METHODS
from fedcohort.core.roles import ROLES
from fedcohort.runs.method_catalogue import describe, read_story
from support import REPOSITORY

SCRIPT = REPOSITORY / "scripts/update_docs.py"
WIDTH = 76  # of an equation: an 80-column terminal shows it indented, unbroken

STORY = """Name: authors, "a title that goes
on", venue. URL

A remark.

Another
one.

Equation:
    a = b
      + c

Where we differ:
    - Here, in
      two lines.
    - There.
"""


def test_a_story_is_read_by_its_sections():
    assert read_story(STORY) == {
        "paper": 'Name: authors, "a title that goes on", venue. URL',
        "remarks": "A remark.\n\nAnother one.",
        "equation": "a = b\n  + c",
        "differences": "- Here, in two lines.\n- There.",
    }


def test_a_story_may_be_a_name_alone():
    assert read_story("Only a name.") == {
        "paper": "Only a name.",
        "remarks": "",
        "equation": "",
        "differences": "",
    }


@pytest.mark.parametrize("name", METHODS.names())
def test_every_file_gives_its_equation_and_where_it_differs(name):
    entry = describe(name)
    assert entry["equation"], f"{name}.py has no section 'Equation:'"
    assert entry["differences"], f"{name}.py has no section 'Where we differ:' (perhaps 'Nothing known.')"
    assert max(map(len, entry["equation"].splitlines())) <= WIDTH
    with results.capture() as shown:
        results.print(method_page(entry))
    words = " ".join(shown.get().split())
    for text in (entry["equation"], entry["differences"], entry["remarks"]):
        assert " ".join(text.split()) in words


def test_the_committed_pages_are_what_the_source_says():
    docs = runpy.run_path(str(SCRIPT))
    pages = docs["pages"]().items()
    old = [path.name for path, text in pages if not path.exists() or path.read_text() != text]
    assert not old, f"run .venv/bin/python scripts/update_docs.py: {old} are not what the source says"
    assert not docs["stale"]()


def test_the_roles_fit_on_two_screens():
    """And are what the guide links first; every hook and every class says something."""
    text = (REPOSITORY / "docs/roles.md").read_text()
    assert len(text.splitlines()) <= 120
    assert re.findall(r"^- .*: \.$", text, re.M) == []
    assert [role for role in ROLES.values() if f"## {role.__name__}\n" not in text] == []
    guide = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("## Add a method")[2]
    assert re.findall(r"\]\(([^)]+)\)", guide)[0] == "docs/roles.md"


PAGES = [
    *REPOSITORY.glob("*.md"),
    *(REPOSITORY / "docs").glob("*.md"),
    *(REPOSITORY / "benchmarks").glob("*.md"),
]
ELSEWHERE = {"tests/methods/test_fedrare.py", "app/README.md"}  # in walk-throughs and in what they make


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_are_there(page: Path):
    named = set(re.findall(r"`((?:[\w.]+/)+\w+\.(?:py|md|json|toml))`", page.read_text()))
    roots = (REPOSITORY, REPOSITORY / "src/fedcohort", page.parent)
    gone = {name for name in named - ELSEWHERE if not any((root / name).exists() for root in roots)}
    assert gone == set()


def test_every_method_is_reached_from_the_readme():
    assert "(docs/methods/index.md)" in (REPOSITORY / "README.md").read_text()
    index = (REPOSITORY / "docs/methods/index.md").read_text()
    missing = [name for name in METHODS.names() if f"]({name}.md)" not in index]
    assert not missing
