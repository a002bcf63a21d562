"""The package as others get it: what it imports is declared, its version stands once, a wheel is enough."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import packages_distributions
from pathlib import Path

import house
import pytest

import fedcohort
from support import REPOSITORY

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def declared() -> set[str]:
    """The distributions that some installation of the package brings."""
    extras = [needed for extra, needed in PROJECT["optional-dependencies"].items() if extra != "dev"]
    listed = [*PROJECT["dependencies"], *(each for needed in extras for each in needed)]
    return {re.split(r"[\[<>=~! ]", each)[0].lower().replace("_", "-") for each in listed}


def test_every_imported_package_is_declared():
    known, own = packages_distributions(), {*sys.stdlib_module_names, "fedcohort"}
    modules = {
        name.partition(".")[0]
        for path in (REPOSITORY / "src").rglob("*.py")
        for _, name in house.imported(path)
    }
    homes = {
        module: {name.lower().replace("_", "-") for name in known.get(module, [])} for module in modules - own
    }
    assert {module for module, found in homes.items() if not found & declared()} == set()


def test_the_version_stands_in_one_place():
    assert PROJECT["dynamic"] == ["version"]
    assert f"\nversion: {fedcohort.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()
    assert f"\n## {fedcohort.__version__}\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_the_workflow_does_what_ci_does():
    head, *steps = re.split(r"^(?=make )", (REPOSITORY / ".ci/run").read_text(), flags=re.MULTILINE)
    assert head == '#!/usr/bin/env bash\nset -euo pipefail\ncd "$(dirname "$0")/.."\n'
    workflow = (REPOSITORY / ".github/workflows/ci.yml").read_text()
    assert re.findall(r"run: (make .+\n)", workflow) == steps


@pytest.mark.deploy
def test_a_wheel_in_an_empty_environment_is_enough(tmp_path: Path):
    """Built here, installed with its requirements and nothing else, and used far from the repository."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path, REPOSITORY], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty/bin/python"
    constraints = REPOSITORY / "constraints.txt"
    subprocess.run([python, *pip[1:], "install", "-c", constraints, wheel], check=True)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "FEDCOHORT"))}
    words = [tmp_path / "empty/bin/fedcohort", "demo", "--rounds", "2", "--json"]
    done = subprocess.run(words, cwd=tmp_path, env=clean, capture_output=True, text=True, check=True)
    assert '"leaderboard"' in done.stdout
    assert next(tmp_path.glob("runs/demo-001/report.html"), None) is not None
