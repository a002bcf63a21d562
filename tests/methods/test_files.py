"""A method is one small file that knows nothing of engines, logging or other methods."""

import ast
import tokenize
from pathlib import Path

import house
import pytest

import fedcohort.methods

FILES = sorted(Path(fedcohort.methods.__file__).parent.glob("[a-z]*.py"))
LONGEST = 85  # lines of code, imports included; docstrings, comments and blank lines do not count
SHORT = {"scaffold": 45, "cfl": 70, "fedgwc": 70, "median": 35}  # what the hooks can spare, they shall


def code_lines(path: Path) -> int:
    words = {tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING}
    docs = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs |= set(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.ImportFrom):  # one line, however long its list of names is
            docs |= set(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    with path.open() as file:
        used = {token.start[0] for token in tokenize.generate_tokens(file.readline) if token.type in words}
    return len(used - docs)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_small_and_by_itself(path: Path) -> None:
    """What methods of one paper share may have a file of its own, whose name begins with _."""
    assert code_lines(path) <= SHORT.get(path.stem, LONGEST)
    ours = {name for _, name in house.imported(path) if name.startswith("fedcohort.")}
    assert {name for name in ours if not name.startswith(("fedcohort.api.", "fedcohort.methods._"))} == set()
    assert "logging" not in {name for _, name in house.imported(path)}


def test_what_is_shared_has_several_users() -> None:
    """A helper of one method would only hide how long it is."""
    for helper in FILES[0].parent.glob("_[a-z]*.py"):
        name = f"fedcohort.methods.{helper.stem}"
        users = [path for path in FILES if any(used.startswith(name) for _, used in house.imported(path))]
        assert len(users) > 1, helper.name
