"""Every test that docs/guarantees.md names is there."""

import re

from support import REPOSITORY

ROOT = REPOSITORY


def test_every_promise_names_tests_that_exist() -> None:
    named, path = [], ""
    for reference in re.findall(r"`([\w/.]*::\w+)`", (ROOT / "docs/guarantees.md").read_text()):
        place, _, name = reference.partition("::")
        path = place or path  # the file named before, where only a test is
        named.append((path, name))
    assert len(named) > 40
    missing = [each for each in named if f"def {each[1]}(" not in (ROOT / each[0]).read_text()]
    assert not missing
