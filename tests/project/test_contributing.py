"""The walk-through in CONTRIBUTING.md and the files of ``fedcohort new`` really are methods."""

import importlib
import re

import pytest
import torch

from fedcohort.cli.new_method import FILES, write_method
from fedcohort.core.method import METHODS, Method, make, roles_of
from fedcohort.testing import CHECKS, play, tiny_task
from support import REPOSITORY

GUIDE = REPOSITORY / "CONTRIBUTING.md"
PARTNERS = [name for name in METHODS.names() if "averaging" not in roles_of(METHODS.get(name))]


@pytest.fixture
def walk_through(elsewhere):
    """The package of the guide: its one file, as printed."""
    printed = re.compile(r"<!-- walk-through: (\w+)\.py -->\n```python\n(.*?)```", re.S)
    name, text = printed.search(GUIDE.read_text()).groups()
    package = elsewhere / "yourpackage"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / f"{name}.py").write_text(text)
    importlib.import_module(f"yourpackage.{name}")
    return name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_walk_through_keeps_the_contract(walk_through, check):
    check(Method.parse(walk_through))


@pytest.mark.parametrize("other", PARTNERS)
def test_the_walk_through_combines(walk_through, other):
    assert play(Method.of(*make(walk_through, {}), *make(other, {})), tiny_task(), 2)[0].round == 2


def test_the_walk_through_reduces_to_the_even_mean(walk_through):
    """power=0 weighs everybody the same: the next model is the plain mean of the clients' models."""
    task, method = tiny_task(), Method.parse(f"{walk_through}(power=0)")
    memory = method.averaging.init_server(task.profile(method))
    assert torch.equal(memory["rarity"], torch.ones(task.federation.num_clients))


@pytest.mark.parametrize("role", FILES)
def test_a_new_method_runs_before_it_is_changed(elsewhere, role):
    write_method(f"my_{role}", role, elsewhere)
    importlib.import_module(f"my_{role}")
    for check in CHECKS:
        check(Method.parse(f"my_{role}"))
