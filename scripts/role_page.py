"""What a method may define, on a page: read from the roles themselves, written to docs/roles.md."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedcohort.core.roles import ROLES, USES

CORE = Path(__file__).parents[1] / "src/fedcohort/core"
GIVEN = {"Round": "now", "Updates": "updates", "View": "view", "Trained": "trained"}  # as hooks call them
HELPERS = {"has_own", "affine"}  # of roles, that nobody defines


def page() -> str:
    """Roles with their hooks, the classes that few methods need, and what hooks are given."""
    roles = "\n\n".join(_role(CORE / "roles" / f"{name}.py") for name in (*ROLES, "part"))
    optional = "\n".join(_option(each) for each in _classes(CORE / "roles/optional.py"))
    given = {each.name: each for each in _classes(CORE / "records.py")}
    records = "\n".join(f"- `{GIVEN[name]}` (`{name}`): {_members(given[name])}." for name in GIVEN)
    return PAGE.format(roles=roles, optional=optional, records=records, uses=_named(USES))


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


def _role(path: Path) -> str:
    role, lines = next(_classes(path)), path.read_text(encoding="utf-8").splitlines()
    flags = [f"- `{name}`: {lines[line - 1].partition('  # ')[2]}." for name, line in _fields(role)]
    hooks = [f"- {_signature(hook)}: {_first(hook)}" for hook in _hooks(role)]
    return "\n".join([f"## {role.name}", _first(role), "", *flags, *hooks])


def _option(option: ast.ClassDef) -> str:
    return f"- `{option.name}` ({_named(hook.name for hook in _hooks(option))}): {_first(option)}"


def _fields(record: ast.ClassDef) -> list[tuple[str, int]]:
    """Names of attributes, and the line of each."""
    return [
        (ast.unparse(each.target), each.lineno) for each in record.body if isinstance(each, ast.AnnAssign)
    ]


def _hooks(role: ast.ClassDef) -> list[ast.FunctionDef]:
    """In the order in which they run."""
    return [node for node in role.body if isinstance(node, ast.FunctionDef) and node.name not in HELPERS]


def _signature(hook: ast.FunctionDef) -> str:
    given = ", ".join(each.arg for each in hook.args.args if each.arg != "self")
    return f"`{hook.name}({given}) -> {ast.unparse(hook.returns or ast.Constant(None))}`"


def _members(record: ast.ClassDef) -> str:
    names = [*(name for name, _ in _fields(record)), *(hook.name for hook in _hooks(record))]
    return _named(name for name in names if not name.startswith("_"))


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _first(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The first sentence of what it says of itself, as Markdown."""
    text = " ".join((ast.get_docstring(node) or "").split())
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text).replace("``", "`")
    return text.partition(". ")[0].rstrip(".") + "."


PAGE = """\
<!-- Written by scripts/update_docs.py from src/fedcohort/core/roles/. -->

# Roles

A method is a class that inherits from one role or several, and overrides those hooks at which it does
something else. Everything here is imported from `fedcohort.api`. [Add a method](../CONTRIBUTING.md) shows a
whole file, and [`core/roles/`](../src/fedcohort/core/roles) has each hook in full, with its default. Hooks
stand in the order in which they run.

{roles}

`uses` may name {uses}.

## What few methods need

A part that inherits from one of these beside its role is asked for more.

{optional}

## What hooks are given

`memory` and `mine` are named tensors that a part and a client keep; whatever changes goes through them.
`profile` is what the server knows of the federation.

{records}
"""
