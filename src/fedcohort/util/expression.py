"""Named things with settings, written as text: ``fedlecc+fedprox(mu=0.01)``, ``dirichlet(clients=30,
alpha=0.1)``."""

import ast
from typing import Any

from fedcohort.util.errors import UserError


def parse(text: str) -> list[tuple[str, dict[str, Any]]]:
    """``"a+b(x=1)"`` as ``[("a", {}), ("b", {"x": 1})]``."""
    wrong = UserError(f"cannot read '{text}': write it like fedlecc+fedprox(mu=0.01) or dirichlet(alpha=0.1)")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return [_parse_part(node, wrong) for node in _terms(tree)]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):  # the last two: nested too deep
        raise wrong from None


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _parse_part(node: ast.expr, wrong: UserError) -> tuple[str, dict[str, Any]]:
    call = node if isinstance(node, ast.Call) else None
    name = call.func if call else node
    if not isinstance(name, ast.Name | ast.Attribute) or (call and call.args):
        raise wrong
    words = {"true": True, "false": False, "none": None}
    values = {}
    for keyword in call.keywords if call else ():
        value = keyword.value
        if keyword.arg is None or keyword.arg in values:
            raise wrong
        if isinstance(value, ast.Name):
            values[keyword.arg] = words.get(value.id.lower(), value.id)
            continue
        values[keyword.arg] = ast.literal_eval(value)
    return ast.unparse(name), values
