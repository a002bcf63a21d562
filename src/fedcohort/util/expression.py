"""Named things with settings, written as text: ``fedlecc+fedprox(mu=0.01)``, ``clip(1.0)``,
``dirichlet(clients=30, alpha=0.1)``."""

import ast
from typing import Any

from fedcohort.util.errors import UserError

FIRST = ""  # the name of a value that was given without one
WORDS = {"true": True, "false": False, "none": None}


def parse(text: str) -> list[tuple[str, dict[str, Any]]]:
    """``"a+b(x=1)"`` as ``[("a", {}), ("b", {"x": 1})]``; a first value without a name is called FIRST."""
    wrong = UserError(f"cannot read '{text}': write it like fedlecc+fedprox(mu=0.01) or dirichlet(alpha=0.1)")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return [_parse_part(node, wrong) for node in _terms(tree)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # the last two: nested too deep
        raise wrong from None


def parse_one(text: str, setting: str) -> tuple[str, dict[str, Any]]:
    """The same where only one will do."""
    one, *others = parse(text)
    if others:
        raise UserError(f"{setting}: '{text}' is several, give one of them")
    return one


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _parse_part(node: ast.expr, wrong: UserError) -> tuple[str, dict[str, Any]]:
    call = node if isinstance(node, ast.Call) else None
    name = call.func if call else node
    if not isinstance(name, ast.Name | ast.Attribute) or (call and len(call.args) > 1):
        raise wrong
    values: dict[str, Any] = {FIRST: _parse_value(call.args[0])} if call and call.args else {}
    for keyword in call.keywords if call else ():
        if keyword.arg is None or keyword.arg in values:
            raise wrong
        values[keyword.arg] = _parse_value(keyword.value)
    return ast.unparse(name), values


def _parse_value(node: ast.expr) -> Any:
    return WORDS.get(node.id.lower(), node.id) if isinstance(node, ast.Name) else ast.literal_eval(node)
