"""A method is one small file that knows nothing of engines, logging or other methods."""

import ast
import tokenize
from pathlib import Path

import pytest

import fedcohort.methods

FILES = sorted(Path(fedcohort.methods.__file__).parent.glob("[a-z]*.py"))
LONGEST = 85  # lines of code, imports included; docstrings, comments and blank lines do not count
STRANGE = ("fedcohort.engines", "fedcohort.flower", "fedcohort.runs.run", "fedcohort.core.round.loop")
STRANGE += (
    "fedcohort.core.round.merge",
    "fedcohort.core.task",
    "fedcohort.core.evaluate",
    "fedcohort.methods",
    "logging",
)


def code_lines(path: Path) -> int:
    words = {tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING}
    docs = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docs |= set(range(node.lineno, (node.end_lineno or 0) + 1))
    with path.open() as file:
        used = {token.start[0] for token in tokenize.generate_tokens(file.readline) if token.type in words}
    return len(used - docs)


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_small_and_by_itself(path: Path) -> None:
    assert code_lines(path) <= LONGEST
    shared = {"fedcohort.methods._fedopt"}  # the server's step that three methods of one paper have in common
    elsewhere = tuple(f"fedcohort.{name}." for name in STRANGE)
    others = {name for name in imported(path) - shared if f"{name}.".startswith((*elsewhere, "logging."))}
    assert not others
