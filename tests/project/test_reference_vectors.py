"""Every reference number belongs to a test: by its name in the code or in the docstring of its file."""

import json
import re
from pathlib import Path

from support import REPOSITORY

HERE = REPOSITORY / "tests"


def test_every_reference_vector_is_asserted_somewhere():
    vectors = json.loads((HERE / "reference_vectors.json").read_text())
    tests = "\n".join(path.read_text() for path in HERE.rglob("test_*.py") if path != Path(__file__))
    unused = [name for name in vectors if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", tests)]
    assert len(vectors) == 59
    assert unused == []
