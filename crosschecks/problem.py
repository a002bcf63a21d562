"""What fedcohort and its peers are given alike. Runs in every peer's environment: NumPy only."""

import argparse
import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

LR = 0.1  # of the clients' steps
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Training:
    """A federation to train on, with everything that a method draws at random already drawn.

    Clients take full-batch steps, so that the order in which anybody draws examples does not matter.
    """

    x: np.ndarray  # [n, features] float32
    y: np.ndarray  # [n]
    owner: np.ndarray  # [n] the client of each example
    steps: np.ndarray  # [K] local steps of each client in a round
    cohorts: np.ndarray  # [rounds, m]
    init: np.ndarray  # [P] first weights

    @property
    def clients(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Moves:
    """What clients send round after round, whatever the model: a server's steps without any training."""

    deltas: np.ndarray  # [rounds, K, P]
    losses: np.ndarray  # [rounds, K, steps] of each step
    sizes: np.ndarray  # [K]
    init: np.ndarray  # [P]


def write(problem: Training | Moves | Arrays, path: Path) -> Path:
    with path.open("wb") as file:
        np.savez(file, **(problem if isinstance(problem, dict) else vars(problem)))
    return path


def read() -> Any:
    """The arrays of the problem that a peer is given as its one argument."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", type=Path)
    with np.load(parser.parse_args().problem) as arrays:
        return dict(arrays)


def report(runs: dict[str, Any], *packages: str) -> None:
    """A peer's last line: what it computed, and with which versions."""
    print(json.dumps({"runs": runs, "versions": {name: version(name) for name in packages}}))
