"""A clone of somebody's repository: where it is, which commit, and what its functions make of a problem."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np

from benchmarks.runners import ROOT, call, environment, install
from crosschecks.asking import PEERS
from crosschecks.problem import Arrays, write
from crosschecks.rows import place

FOLDER = Path(os.environ.get("FEDCOHORT_AUTHORS") or ROOT.parent / "authors-code")


@dataclass(frozen=True)
class Clone:
    """Of the code that the module ``name`` compares with."""

    name: str
    repository: str  # owner/name
    parent: Path  # the folder that all clones are in

    @property
    def folder(self) -> Path:
        return self.parent / self.repository.split("/")[1]

    @property
    def missing(self) -> str:
        """Why it cannot be compared with; empty: it can."""
        if self.folder.is_dir():
            return ""
        source = f"https://github.com/{self.repository}"
        return f"no clone of {self.repository} in {self.parent}; `git clone {source} {self.folder}`"

    @property
    def version(self) -> str:
        """The commit, and whether the folder still holds it."""
        commit = self._git("rev-parse", "--short", "HEAD")
        changed = self._git("diff", "--name-only", "HEAD", "--", "*.py", "*.ipynb")
        return f"{commit} with changes" if commit and changed else commit or "of an unknown commit"

    def _git(self, *words: str) -> str:
        command = ["git", "-C", str(self.folder), *words]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    def ask(self, problem: Arrays, peer: str = "") -> Arrays:
        """What ``theirs`` of the module answers, in this environment or in one that is made for it."""
        if peer:
            install(peer, PEERS)
        python = str(environment(peer) / "bin" / "python") if peer else sys.executable
        with tempfile.TemporaryDirectory() as folder:
            given, found = write(problem, Path(folder) / "problem.npz"), Path(folder) / "answer.npz"
            words = "crosschecks.authors", self.name, str(self.folder), str(given), str(found)
            call([python, "-B", "-m", *words])  # -B: a clone stays as it is
            with np.load(found) as arrays:
                return dict(arrays)

    def reason(self, says: str, *lines: tuple[str, str]) -> str:
        """Why it differs; each ``{}`` becomes the place of a line: of its file, and a fragment of it."""
        return says.format(*(place(self.folder, *line) for line in lines))


def pretend(*modules: str) -> None:
    """Lets modules be imported that are not here, as long as nothing of them is needed."""
    sys.modules.update({name: MagicMock() for name in modules})


def attempt(run: Callable[[], np.ndarray]) -> np.ndarray:
    """What a run gives, or the error that ends it."""
    try:
        return run()
    except (AttributeError, TypeError) as error:
        return np.array([f"{type(error).__name__}: {error}"])
