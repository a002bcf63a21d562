"""``fedcohort new method``: a method file that already runs, and the start of its equation test."""

import keyword
from importlib.util import find_spec
from pathlib import Path

from fedcohort.core.method import METHODS
from fedcohort.core.roles import ROLES
from fedcohort.util.errors import UserError
from fedcohort.util.settings import nearest

HEAD = '''"""{title}: authors, "title of the paper", venue. URL

Equation:
    what the paper prints, in its letters or in those of docs/methods/index.md

Where we differ:
    Nothing known.
"""

from dataclasses import {dataclasses}
from typing import Annotated

{imports}


@register
@dataclass(frozen=True)
class {title}({role}):
    """One sentence that a reader of the paper recognises."""

'''

SELECTOR = """    spread: Annotated[float, at_least(0)] = 1.0  # how strongly large clients are favoured

    def select(self, memory: Memory, now: Round, losses: Tensor | None) -> Ids:
        return now.draw("select", now.profile.size[now.members].double() ** self.spread)
"""

OBJECTIVE = """    mu: Annotated[float, at_least(0)] = 0.1  # strength of the pull towards the sent model

    def anchor(self, view: View) -> Anchor:
        return Anchor(pull=self.mu)
"""

AVERAGING = """    power: Annotated[float, at_least(0)] = 0.5  # 1 weighs clients by samples, 0 evenly

    def weights(self, memory: Memory, updates: Updates, now: Round) -> Tensor:
        shares = updates.shares**self.power
        return shares / shares.sum()
"""

SERVER_OPTIMISER = """    server_lr: Annotated[float, at_least(0)] = 1.0  # length of the server's step

    def step(
        self, params: Tensor, move: Tensor, memory: Memory, updates: Updates, now: Round
    ) -> tuple[Tensor, Memory]:
        return params + self.server_lr * move, memory
"""

TRANSFORM = """    least: Annotated[float, at_least(0)] = 1e-4  # smaller changes of a parameter are not sent

    def upload(self, delta: Tensor, mine: Memory, view: View) -> tuple[Tensor, Memory]:
        return delta * (delta.abs() >= self.least), mine
"""

GROUPING = """    groups: Annotated[int, at_least(1)] = 2  # clients are dealt to this many models by size

    def init_grouping(self, profile: Profile) -> Memory:
        rank = profile.size.argsort().argsort()
        return {"group": rank * min(self.groups, len(rank)) // len(rank)}
"""

ADAPTATION = """    epochs: Annotated[float, at_least(0.1)] = 2.0  # over a client's own samples

    def budget(self, local: Local) -> Local | None:
        return replace(local, epochs=self.epochs)
"""

FILES = {
    "selector": (SELECTOR, ("Ids", "Memory", "Round", "Selector")),
    "objective": (OBJECTIVE, ("Anchor", "Objective", "View")),
    "averaging": (AVERAGING, ("Averaging", "Memory", "Round", "Updates")),
    "server_optimiser": (SERVER_OPTIMISER, ("Memory", "Round", "ServerOptimiser", "Updates")),
    "grouping": (GROUPING, ("Grouping", "Memory", "Profile")),
    "adaptation": (ADAPTATION, ("Adaptation", "Local")),
    "transform": (TRANSFORM, ("Memory", "Transform", "View")),
}

TEST = '''"""{title} against numbers derived by hand, and against the contract that every method keeps."""

import {name}  # noqa: F401 (registers the method)

from fedcohort.testing import check_method


def test_contract():
    check_method("{name}")


def test_equation():
    """Derive here what one round must give, then assert it."""
'''


def write_method(name: str, role: str, directory: Path) -> list[Path]:
    """Writes ``name.py`` and ``test_name.py``; refuses to overwrite anything."""
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise UserError(f"'{name}' cannot be a method's name: use lower-case letters, digits and _")
    if name in METHODS.names():
        raise UserError(f"there is a method called '{name}' already: choose another name")
    if role not in FILES:
        raise UserError(f"--role: unknown role '{role}'{nearest(role, ROLES)}")
    paths = [directory / f"{name}.py", directory / f"test_{name}.py"]
    for path in paths:
        if path.exists():
            raise UserError(f"{path} exists already and is left as it is: choose another name or --dir")
    if find_spec(name) is not None:
        raise UserError(f"there is a module called '{name}', which {name}.py would hide: choose another name")
    title = "".join(word.capitalize() for word in name.split("_"))
    texts = [_method_text(title, role), TEST.format(title=title, name=name)]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {directory}: {error.strerror}; choose another --dir") from None
    return paths


def _method_text(title: str, role: str) -> str:
    body, names = FILES[role]
    imports = [
        *(["from torch import Tensor", ""] if "Tensor" in body else []),
        f"from fedcohort.api import {', '.join((*names, 'at_least', 'register'))}",
    ]
    dataclasses = "dataclass, replace" if "replace(" in body else "dataclass"
    head = {"title": title, "role": ROLES[role].__name__, "dataclasses": dataclasses}
    return HEAD.format(**head, imports="\n".join(imports)) + body
